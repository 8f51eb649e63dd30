"""The files that an evaluation writes during the run: its journal and its records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, DataError, Engine, provider
from tecoinfer_modelzoo import expanded
from tecoinfer_modelzoo.flags import STDOUT
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size, shard
from utils.metrics.base import Metric
from utils.pipeline.session import load_data
from utils.tasks.base import Task

if TYPE_CHECKING:
    from utils.identity import Part
    from utils.pipeline.flags.options import Options
    from utils.pipeline.resume.journal import Journal
    from utils.pipeline.resume.records import Kept, RecordsFile
    from utils.pipeline.resume.run_inputs import RunInputs


@contextmanager
def noting(unwritten: list[str]) -> Iterator[None]:
    """Collect the ConfigError of a file that cannot be written at the end of a run, so that the results are printed."""
    try:
        yield
    except ConfigError as error:
        if rank_and_size()[1] > 1:
            raise
        unwritten.append(str(error))


@contextmanager
def open_run_files(
    task: Task,
    engines: Mapping[str, Engine],
    dataset: Dataset,
    metric: Metric,
    unwritten: list[str],
    kept: list[Kept] | None = None,
    inputs: RunInputs | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the arguments ``journal`` (``--resume``) and ``records`` (``--json``) of ``evaluate_pipeline``.

    Args:
        task, engines, dataset, metric: of the run.
        unwritten: takes a line for each file that cannot be completed after a successful run.
        kept: takes the records of a successful run, which are put in place with the JSON; records of a part, and
            without this list, are put in place immediately.
        inputs: files of the run, as they were before the engines were opened; default: as they are now.

    Raises ConfigError: the journal is of another run, in use, or cannot be written; DataError: the data set, or a file
    that the run reads, changed during a run with a journal.
    """
    opt = task.options
    rank, size = rank_and_size()
    keep: dict[str, Any] = {}
    journaled: _Journaled | None = None
    own = ExitStack()
    try:
        if opt.resume is not None:
            from utils.pipeline.resume.run_inputs import RunInputs

            inputs = inputs or own.enter_context(RunInputs(task))
            journaled = _Journaled(task, engines, inputs, dataset, metric)
            keep["journal"] = journaled.open(opt.resume)
        if opt.json is not None and opt.json != STDOUT:  # without a file, no records
            from utils.pipeline.resume.records import record_writer, records_path
            from utils.pipeline.resume.records.merging import part_path

            path = records_path(opt.json, metric)
            path = path if _alone(opt) else part_path(path, rank, size)
            keep["records"] = record_writer(path, metric, rank=rank, size=size, numbers=dataset.numbers)
        yield keep
        if journaled is not None:
            journaled.check()
    except BaseException:
        if "records" in keep:
            keep["records"].discard()
        if "journal" in keep:
            with suppress(ConfigError):  # the error that ended the run is raised
                keep["journal"].close()
        raise
    finally:
        own.close()
    if "records" in keep:
        with noting(unwritten):
            _complete(keep["records"], kept, waits=_alone(opt))
    if "journal" in keep:
        with noting(unwritten):
            keep["journal"].close()


def _complete(records: RecordsFile, kept: list[Kept] | None, *, waits: bool) -> None:
    """Complete the records; put them in place unless the caller does it later."""
    found = records.complete()
    if kept is None or not waits:
        found.place()
    if kept is not None:
        kept.append(found)


def _alone(opt: Options) -> bool:
    """Return whether this process has the whole data set, and writes the result."""
    return opt.launcher == "none" and rank_and_size()[1] == 1


class _Journaled:
    """The identity of a run with a journal: hashes of all its inputs, before and during the run."""

    def __init__(
        self, task: Task, engines: Mapping[str, Engine], inputs: RunInputs, dataset: Dataset, metric: Metric
    ) -> None:
        opt = task.options
        self._task, self._opt, self._engines, self._inputs, self._dataset = task, opt, engines, inputs, dataset
        self._parts: dict[str, Part] = {}
        self._before = _times(opt, dataset)
        self._identity = _identity(opt, engines, inputs, dataset, metric)
        written = [path for path in (opt.json, opt.resume, opt.save_predictions) if path is not None]
        self._inputs.leave_out(written, [*map(Path, self._before), *opt.paths.values()])

    def open(self, folder: Path) -> Journal:
        """Return the journal of this run in a folder.

        Raises ConfigError if it is of another run, in use, or cannot be written; DataError if a file changed meanwhile.
        """
        from utils.identity import part_of
        from utils.pipeline.resume.journal import Journal

        self._refuse_changed()
        journal = Journal.open(folder, self._identity, facts=self._facts)
        self._parts |= {name: part_of(Path(name)) for name in journal.facts if name.startswith(os.sep)}
        try:
            journal.check_facts({name: part.content for name, part in self._parts.items()})
        except BaseException:
            journal.close()
            raise
        return journal

    def _facts(self) -> dict[str, str]:
        """Return hashes of files read so far that no flag names, and of int8 engines after calibration."""
        from utils.identity import computed_by

        self._parts |= self._inputs.read.new()
        files = {name: part.content for name, part in self._parts.items()}
        late = {name: engine for name, engine in self._engines.items() if engine.agreement is not None}
        return files | {f"engine of {name}": computed_by(engine) for name, engine in late.items()}

    def check(self) -> None:
        """Raise DataError if the data set or a file has changed during the run."""
        if _fingerprint_now(self._task, self._dataset, self._before) != self._identity["data"]:
            raise self._mixed(f"data set {self._opt.data_text}")
        self._refuse_changed()

    def _refuse_changed(self) -> None:
        changed = self._inputs.changed(self._parts)
        if changed is not None:
            raise self._mixed(str(changed))

    def _mixed(self, what: str) -> DataError:
        return DataError(
            f"{what} changed during the run, so its journal in {self._opt.resume} mixes two states; "
            "delete that folder and run again"
        )


def _times(opt: Options, dataset: Dataset) -> dict[str, int]:
    """Return the modification times of the data paths and of :meth:`Dataset.source_files`, in nanoseconds.

    Adding or removing a file changes its folder's time; rewriting a file changes only its own.
    """
    names = {str(expanded(path)) for path in opt.paths.values()} | dataset.source_files()
    return {name: os.stat(name).st_mtime_ns for name in names if os.path.exists(name)}


def _fingerprint_now(task: Task, dataset: Dataset, before: Mapping[str, int]) -> str:
    """Return the data set's current fingerprint; the data set is loaded again only if a modification time changed."""
    if _times(task.options, dataset) == before:
        return dataset.fingerprint()
    try:
        return shard(load_data(type(task)(task.options)), *rank_and_size()).fingerprint()
    except DataError:
        return "cannot be loaded any more"


def _identity(
    opt: Options, engines: Mapping[str, Engine], inputs: RunInputs, dataset: Dataset, metric: Metric
) -> dict[str, Any]:
    """Return the values that must be equal for a run to be resumed from a journal."""
    from utils.identity import computed_by

    rank, size = rank_and_size()
    return {
        "task": opt.task,
        "files": inputs.contents,
        "data": dataset.fingerprint(),
        "samples": len(dataset),
        "batch_size": opt.batch_size,
        "input_shapes": opt.input_shapes,
        "input_name": list(opt.input_name),
        "dim": opt.dim,
        "target": opt.target,
        "provider": provider(opt.target),
        "engine": _only({name: computed_by(engine) for name, engine in engines.items()}),
        "dtype": _only({name: engine.dtype for name, engine in engines.items()}),
        **{key: _plain(getattr(opt, key)) for key in opt.flags if not inputs.by_content(key)},
        "metric": metric.name,
        "rank": rank,
        "size": size,
    }


def _only(found: Mapping[str, Any]) -> Any:
    """Return the only value, or all by name."""
    return next(iter(found.values())) if len(found) == 1 else dict(found)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
