"""What an evaluation leaves on the disk as it goes: its journal and its per-sample records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from engine.base import DataError, Engine
from engine.registry import provider
from utils.datasets.loading import LABEL_FILE, load_dataset
from utils.datasets.samples import Batches
from utils.datasets.sharding import rank_and_size, shard
from utils.datasets.table import CHUNK
from utils.metrics.base import Metric

if TYPE_CHECKING:
    from utils.pipeline.cli import Options


@contextmanager
def kept(opt: Options, engine: Engine, batches: Batches, metric: Metric) -> Iterator[dict[str, Any]]:
    """Yield what ``evaluate`` takes to keep its steps (``--resume``) and its records (``--json``), open.

    Raises:
        ConfigError: the journal is of another run, in use, or cannot be written.
        DataError: the data set changed while a journalled run was under way.
    """
    rank, size = rank_and_size()
    with ExitStack() as stack:
        keep: dict[str, Any] = {}
        identity: dict[str, Any] = {}
        if opt.resume is not None:
            from utils.pipeline.journal import Journal

            before = _places(opt, batches)
            identity = _identity(opt, engine, batches, metric)
            keep["journal"] = stack.enter_context(Journal.open(opt.resume, identity))
        if opt.json is not None:
            from utils.pipeline.launch.part_records import part_path
            from utils.pipeline.records import RecordWriter, records_path

            path = records_path(opt.json)
            path = path if size == 1 else part_path(path, rank, size)
            keep["records"] = stack.enter_context(RecordWriter(path, metric.name, rank=rank, size=size))
        yield keep
        if opt.resume is not None and _fingerprint_now(opt, batches, before) != identity["data"]:
            raise DataError(
                f"data set {opt.data_path} changed under the run, so its journal in {opt.resume} mixes two states; "
                "delete that folder and run again"
            )


def _places(opt: Options, batches: Batches) -> dict[str, int]:
    """Return when the data path and the folders of the samples were last changed, in nanoseconds.

    A file that comes or goes changes its folder's time; one that is rewritten does not, its own time says that.
    """
    path = opt.data_path.expanduser()
    names = {str(path), str(path / LABEL_FILE)}
    samples = batches.dataset.samples
    for start in range(0, len(samples) if batches.dataset.rows is None else 0, CHUNK):
        names |= {os.path.dirname(name) or "." for name in samples.names(slice(start, start + CHUNK))}
    return {name: os.stat(name).st_mtime_ns for name in names if os.path.exists(name)}


def _fingerprint_now(opt: Options, batches: Batches, before: dict[str, int]) -> str:
    """Return what the data set's fingerprint is by now; it is only loaded again where something was added or listed."""
    if _places(opt, batches) == before:
        return batches.dataset.fingerprint()
    try:
        return shard(load_dataset(opt.data_path), *rank_and_size()).fingerprint()
    except DataError:
        return "cannot be loaded any more"


def _identity(opt: Options, engine: Engine, batches: Batches, metric: Metric) -> dict[str, Any]:
    """Return all that must be the same for a run to go on from another's journal."""
    from engine.files import hash_files

    rank, size = rank_and_size()
    return {
        "model": hash_files(opt.ckpt),
        "data": batches.dataset.fingerprint(),
        "samples": len(batches.dataset),
        "batch_size": opt.batch_size,
        "input_size": list(opt.size),
        "target": opt.target,
        "provider": provider(opt.target),
        "engine": engine.describe(),
        "dtype": engine.dtype,
        "pass_path": opt.pass_path,
        "decode": opt.decode,
        "metric": metric.name,
        "skip_postprocess": opt.skip_postprocess,
        "rank": rank,
        "size": size,
    }
