"""The files that an evaluation writes as it goes: its journal and its records, opened together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from engine import ConfigError, DataError, Engine, provider
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size, shard
from utils.metrics.base import Metric
from utils.tasks.base import Task

if TYPE_CHECKING:
    from utils.pipeline.options import Options
    from utils.pipeline.records import Kept, RecordsFile


@contextmanager
def noting(unwritten: list[str]) -> Iterator[None]:
    """Note a file that cannot be written at the end of a run, whose results are still to be told."""
    try:
        yield
    except ConfigError as error:
        if rank_and_size()[1] > 1:
            raise
        unwritten.append(str(error))


@contextmanager
def open_run_files(
    task: Task,
    opt: Options,
    engines: Mapping[str, Engine],
    dataset: Dataset,
    metric: Metric,
    unwritten: list[str],
    kept: list[Kept] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what ``evaluate_work`` takes to keep its steps (``--resume``) and its records (``--json``), open.

    Args:
        unwritten: gets a line for each file that cannot be completed after a run that ended well.
        kept: gets the records of a run that ended well, which take their place with the JSON; those of a part, and
            without this list, take theirs at once.

    Raises:
        ConfigError: the journal is of another run, in use, or cannot be written.
        DataError: the data set changed while a journalled run was under way.
    """
    rank, size = rank_and_size()
    keep: dict[str, Any] = {}
    identity: dict[str, Any] = {}
    before: dict[str, int] = {}
    try:
        if opt.resume is not None:
            from utils.pipeline.journal import Journal

            before = _times(opt, dataset)
            identity = _identity(opt, engines, dataset, metric)
            keep["journal"] = Journal.open(opt.resume, identity)
        if opt.json is not None:
            from utils.pipeline.records import record_writer, records_path
            from utils.pipeline.records.merging import part_path

            path = records_path(opt.json, metric)
            path = path if _alone(opt) else part_path(path, rank, size)
            keep["records"] = record_writer(path, metric, rank=rank, size=size)
        yield keep
        if opt.resume is not None and _fingerprint_now(task, opt, dataset, before) != identity["data"]:
            raise DataError(
                f"data set {opt.data_text} changed under the run, so its journal in {opt.resume} mixes two states; "
                "delete that folder and run again"
            )
    except BaseException:
        if "records" in keep:
            keep["records"].discard()
        if "journal" in keep:
            with suppress(ConfigError):  # what ended the run says more
                keep["journal"].close()
        raise
    if "records" in keep:
        with noting(unwritten):
            _complete(keep["records"], kept, waits=_alone(opt))
    if "journal" in keep:
        with noting(unwritten):
            keep["journal"].close()


def _complete(records: RecordsFile, kept: list[Kept] | None, *, waits: bool) -> None:
    """Complete the records; they take their place where nobody is to do that later."""
    found = records.complete()
    if kept is None or not waits:
        found.place()
    if kept is not None:
        kept.append(found)


def _alone(opt: Options) -> bool:
    """Say whether this process has all of the data set, and writes the result."""
    return opt.launcher == "none" and rank_and_size()[1] == 1


def _times(opt: Options, dataset: Dataset) -> dict[str, int]:
    """Return when the data paths, and what the data set watches, were last changed, in nanoseconds.

    A file that comes or goes changes its folder's time; one that is rewritten does not, its own time says that.
    """
    names = {str(path.expanduser()) for path in opt.paths.values()} | dataset.watched()
    return {name: os.stat(name).st_mtime_ns for name in names if os.path.exists(name)}


def _fingerprint_now(task: Task, opt: Options, dataset: Dataset, before: Mapping[str, int]) -> str:
    """Return what the data set's fingerprint is by now; it is only loaded again where something was added or listed."""
    if _times(opt, dataset) == before:
        return dataset.fingerprint()
    try:
        return shard(opt.load_data(task), *rank_and_size()).fingerprint()
    except DataError:
        return "cannot be loaded any more"


def _identity(opt: Options, engines: Mapping[str, Engine], dataset: Dataset, metric: Metric) -> dict[str, Any]:
    """Return all that must be the same for a run to go on from another's journal."""
    from engine import hash_files

    rank, size = rank_and_size()
    hashes = {name: hash_files(path) for name, path in opt.models.items()}
    dtypes = {name: engine.dtype for name, engine in engines.items()}
    return {
        "task": opt.task,
        "model": _only(hashes),
        "data": dataset.fingerprint(),
        "samples": len(dataset),
        "batch_size": opt.batch_size,
        "input_shapes": opt.input_shapes,
        "dim": opt.dim,
        "target": opt.target,
        "provider": provider(opt.target),
        "engine": _only({name: engine.describe() for name, engine in engines.items()}),
        "dtype": _only(dtypes),
        "pass_path": opt.pass_path,
        **{key: _plain(getattr(opt, key)) for key in opt.flags},
        "metric": metric.name,
        "rank": rank,
        "size": size,
    }


def _only(found: Mapping[str, Any]) -> Any:
    """Return the only value, or all by name."""
    return next(iter(found.values())) if len(found) == 1 else dict(found)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
