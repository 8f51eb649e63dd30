"""Run of the stages: those whose inputs hold are skipped, and the state is saved after each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.text import did_you_mean, one_line
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Record, Work, digest

ENDS = 2
"""Ends of the process in an optional stage after which it is left out: a crash of native code would come again."""


@dataclass(frozen=True)
class Shown:
    """A line of the progress view: number of the stage, its record, and whether it was skipped."""

    number: int
    stage: Stage
    record: Record
    skipped: bool


class StageError(TecoInferError):
    """A stage failed; those before it are kept."""


def run_stages(
    work: Work,
    stages: Sequence[Stage],
    *,
    only: str = "",
    again: str = "",
    on_start: Callable[[int, Stage], None] = lambda number, stage: None,
    on_end: Callable[[Shown], None] = lambda shown: None,
) -> None:
    """Run the stages in order.

    Args:
        only: run this stage again, and no other. again: run this stage again even if its inputs hold, and others as
            usual. on_start, on_end: called before a stage runs, and when its record is known.

    Raises:
        ConfigError: a stage is unknown, or ``only`` needs stages that have not run.
        StageError: a stage failed; the state is saved.
        KeyboardInterrupt: the state of the finished stages is saved.
    """
    named = {stage.name: stage for stage in stages}
    for flag, name in (("--only", only), ("--again", again)):
        if name and name not in named:
            raise ConfigError(f"{flag} {name!r} is not a stage;{did_you_mean(name, named)} stages: {', '.join(named)}")
    if only:
        missing = [name for name in named[only].needs if name not in work.records]
        if missing:
            raise ConfigError(f"--only {only} needs the results of {', '.join(missing)}; run without --only first")
    for number, stage in enumerate(stages, start=1):
        if only and stage.name != only:
            continue
        _run_one(work, number, stage, stage.name in (only, again), on_start, on_end)


def _run_one(
    work: Work,
    number: int,
    stage: Stage,
    anew: bool,
    on_start: Callable[[int, Stage], None],
    on_end: Callable[[Shown], None],
) -> None:
    inputs = _inputs(work, stage)
    before = work.records.get(stage.name)
    if before is not None and not anew and before.inputs == inputs and _files_hold(work, before):
        on_end(Shown(number, stage, before, True))
        return
    on_start(number, stage)
    start = time.perf_counter()
    if anew:
        work.ends.pop(stage.name, None)
    ended = work.ends.get(stage.name, 0)
    if stage.optional and ended >= ENDS:
        line = f"not done: the process ended in it {ended} times; --again {stage.name} tries it again"
        outcome = Outcome(line, status=NOTED)
    else:
        outcome = _outcome(work, stage)
    record = Record(
        # again: a stage may change what it depends on, such as the files of the model's folder
        _inputs(work, stage),
        one_line(outcome.line),
        outcome.status,
        round(time.perf_counter() - start, 3),
        dict(outcome.facts),
        {_name(work, file): hash_files(file) for file in outcome.files},
        list(outcome.notes),
    )
    work.records[stage.name] = record
    work.save()
    on_end(Shown(number, stage, record, False))


def _outcome(work: Work, stage: Stage) -> Outcome:
    """Run a stage. Its start is in the state, so that an end of the process in it is seen by the next run."""
    work.ends[stage.name] = work.ends.get(stage.name, 0) + 1
    work.save()
    try:
        return stage.run(work)
    except StageError as error:  # an optional stage found what stops the others
        work.records.pop(stage.name, None)
        raise StageError(f"{stage.name}: {one_line(error)}") from error
    except TecoInferError as error:
        work.records.pop(stage.name, None)
        if not stage.optional:
            raise StageError(f"{stage.name}: {_with_note(one_line(error))}") from error
        return Outcome(f"not done: {one_line(error)}", status=NOTED)
    except Exception as error:  # an engine or a plug-in may raise anything
        work.records.pop(stage.name, None)
        if not stage.optional:
            raise
        return Outcome(f"not done: {type(error).__name__}: {one_line(error)}", status=NOTED)
    finally:
        work.ends.pop(stage.name, None)
        work.save()


def _with_note(text: str) -> str:
    """Return an error on metadata with the flag that gives them: the model is exported here, and cannot be again."""
    found = re.search(r"metadata '(\w+)'", text)
    if found is None or "--note" in text:
        return text
    shown = text.removesuffix("; export the model again")
    return f"{shown}; give it with --note {found[1]}=JSON (docs/how-to/adapting.md)"


def _inputs(work: Work, stage: Stage) -> str:
    """Return the hash of all that a stage's result depends on."""
    needed = {name: digest(work.facts(name)) for name in stage.needs}
    return digest({"own": stage.inputs(work), "needs": needed})


def _name(work: Work, file: Path) -> str:
    """Return a file relative to the working folder, or else absolute."""
    return str(file.relative_to(work.folder)) if file.is_relative_to(work.folder) else str(file.resolve())


def _files_hold(work: Work, record: Record) -> bool:
    """Return whether the files that a stage wrote are there, unchanged."""
    for name, content in record.files.items():
        file = work.folder / name
        if not file.is_file() or hash_files(file) != content:
            return False
    return True
