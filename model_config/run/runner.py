"""Execution of the steps of a case: one process per step, in a temporary copy of the model's folder.

The copy keeps the checkout unchanged, as the export writes files into the folder.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine import DataError
from model_config.cases.config import Case, Command
from model_config.results import StepResult
from model_config.run.closing import closing, last_line, said_of_nan
from model_config.run.environment import environment_of
from model_config.run.limits import Limits, default_memory
from model_config.run.preloaded import Preloaded, Process
from model_config.run.supervised import broken, ending, settings_of, start_alone, supervised
from model_config.run.workplace import workplace
from model_config.structure.requirements import required
from model_config.written import settle
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.trees import remove_tree
from utils.pipeline.launch.exit_status import crashed
from utils.pipeline.resume.records.names import find_records

__all__ = [
    "Limits",
    "Slot",
    "StepResult",
    "default_memory",
    "run_step",
    "workplace",
]

_MIB = 2**20
_REFUSED = re.compile(r"--(json|save)\b")

OnOutput = Callable[[str, str, str], None]
"""Called with case, step and a printed line, from several threads; one line at a time per stream."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Place where a case runs.

    Attributes:
        cores: core numbers; empty for all.
        stop: event that stops the run.
        exports: runs exports that need torch with a shared import of it.
        others: runs all other steps with shared imports.
    """

    cores: tuple[int, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    exports: Preloaded | None = None
    others: Preloaded | None = None


def run_step(
    case: Case,
    step: Command,
    tree: Path,
    logs: Path,
    limits: Limits,
    *,
    extra: Sequence[str] = (),
    name: str | None = None,
    on_output: OnOutput | None = None,
    slot: Slot | None = None,
    handed: Sequence[str] = (),
) -> StepResult:
    """Run one step in a tree of :func:`workplace` and return its result.

    Example steps get ``--json``, and the single step ``--save``, for ``result`` and ``images``; a script that rejects
    these flags, as historical ones do, is rerun without them.

    Args:
        tree: the tree that contains the model's folder.
        logs: folder of the logs; created if missing.
        limits: resource limits of the step.
        extra: arguments appended to the step's own, which they override: ``("--target", "onnx")``. A ``--json FILE``
            (absolute path) in it is used instead of the default.
        name: name of the result and the log files; default: the step's.
        on_output: called with every printed line.
        slot: where to run; default: on all cores, without a stop event.
        handed: additional environment variables for the step (:mod:`.environment`).

    Raises:
        KeyboardInterrupt: Ctrl-C, or ``slot.stop`` was set; all processes of the step have ended.
    """
    logs.mkdir(parents=True, exist_ok=True)
    logs = logs.resolve()
    name = name or step.name
    asked = _asked(step, logs / name, extra)
    run = _Run(case, step, tree, limits, on_output, slot or Slot(), handed)
    result = run(_not_run(case, step, logs, name, (*extra, *asked)), (*extra, *asked))
    if asked and result.exit_code == 2 and _REFUSED.search(result.reason):
        result = run(_not_run(case, step, logs, name, tuple(extra)), extra)
    return result


def _asked(step: Command, stem: Path, extra: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that make an example step write its results."""
    if step.name == "export":
        return ()
    save = ("--save", f"{stem}.images") if step.name == "single" else ()
    return save if "--json" in extra else ("--json", f"{stem}.json", *save)


def _not_run(case: Case, step: Command, logs: Path, name: str = "", extra: tuple[str, ...] = ()) -> StepResult:
    command = (sys.executable, step.run_file, *step.arguments, *extra)
    name = name or step.name
    files = logs / f"{name}.stdout", logs / f"{name}.stderr"
    return StepResult(case.name, name, command, False, 0.0, None, "not run", *files)


@dataclass(frozen=True, slots=True)
class _Run:
    """One step, which can be run repeatedly."""

    case: Case
    step: Command
    tree: Path
    limits: Limits
    on_output: OnOutput | None
    slot: Slot
    handed: Sequence[str]

    def __call__(self, result: StepResult, given: Sequence[str]) -> StepResult:
        """Run ``result.command`` and return the complete result.

        Args:
            result: result of a step that has not run.
            given: arguments that the check adds to the command; files they name are deleted before the run.
        """
        written, folder = _following(given, "--json"), _following(given, "--save")
        promised = _writes_result(self.tree / self.case.run_dir / self.step.run_file)
        start = time.perf_counter()
        try:
            _clear(result, written, folder)
            logs = result.stdout, result.stderr
            outcome, full = supervised(
                partial(self._start, result.command), logs, self.limits, self.slot.stop, self._heard(result.step)
            )
        except OSError as error:
            return replace(result, reason=f"could not be started: {error}; check the machine's memory and disk")
        seconds = time.perf_counter() - start
        strange = self._settled(result)
        metric, trouble = closing(result.stdout) if self.step.name == "valid" else (None, "")
        nan = said_of_nan(written) if outcome["code"] in (0, 1) else ""
        trouble = (
            _unwritten(outcome["code"], written if promised else None, result)
            or _failed(outcome, result)
            or trouble
            or strange
        )
        trouble = full or broken(outcome, self.limits) or nan or trouble
        return replace(
            result,
            passed=not trouble,
            seconds=seconds,
            exit_code=None if full else outcome["code"],
            reason=trouble,
            eval_metric=metric,
            peak_memory=outcome["peak"] or None,
            cpu_seconds=outcome["cpu"] or None,
            result=written if written is not None and written.is_file() else None,
            images=_files(folder),
        )

    def _settled(self, result: StepResult) -> str:
        """Remove invalid files that the step has written, and check its logs; return an error message or empty."""
        strange = settle(result.stdout.parent, 2 * self.limits.output + _MIB)
        for log in (result.stdout, result.stderr):
            if not log.is_file():
                log.parent.mkdir(parents=True, exist_ok=True)
                log.touch()
                strange = strange or f"removed its log {log.name}; write only below the model's folder and to --json"
        return strange

    def _start(self, command: Sequence[str], report: int) -> tuple[Process, str]:
        """Start the step under a supervisor; return it, and the mark of all processes of the step."""
        folder, environment = self.tree / self.case.run_dir, environment_of(self.tree, self.handed)
        settings = settings_of(command, self.slot.cores, self.limits, report)
        export = self.step.name == "export" and "torch" in required(folder)
        shared = self.slot.exports if export else self.slot.others
        if shared is not None:
            forked = shared.start(settings, report, folder, environment)
            if forked is not None:
                return forked, shared.mark
        return start_alone(settings, folder, environment)

    def _heard(self, step: str) -> Callable[[str], None] | None:
        """Return the callback for each line of the step's output."""
        heard = self.on_output
        return None if heard is None else lambda line: heard(self.case.name, step, line)


def _files(folder: Path | None) -> tuple[Path, ...]:
    """Return the files of a folder, sorted; empty if it does not exist."""
    return () if folder is None else tuple(sorted(path for path in folder.glob("*") if path.is_file()))


def _clear(result: StepResult, written: Path | None, folder: Path | None) -> None:
    """Create the folder for the logs, and delete the files of an earlier run."""
    result.stdout.parent.mkdir(parents=True, exist_ok=True)  # the previous step may have removed it
    if written is not None:
        written.unlink(missing_ok=True)
    if folder is not None and folder.is_symlink():
        folder.unlink()
    elif folder is not None and folder.is_dir():
        remove_tree(folder)


def _following(command: Sequence[str], flag: str) -> Path | None:
    """Return the argument of the last occurrence of a flag, as a path."""
    places = [place for place, word in enumerate(command[:-1]) if word == flag]
    return Path(command[places[-1] + 1]) if places else None


def _writes_result(script: Path) -> bool:
    """Return whether a script uses ``utils.pipeline.cli``, which writes the ``--json`` file before it exits.

    Other scripts, such as historical ones, may ignore the flag.
    """
    try:
        text = read_regular(script, _MIB)
    except OSError:  # reported when the script is run
        return False
    return b"utils.pipeline" in text and re.search(rb"\bcli\b", text) is not None


def _unwritten(code: int | None, written: Path | None, result: StepResult) -> str:
    """Return an error if a step ended without its result; an exit code of 0 or 1 requires one, as Python exits with 1.

    Args:
        code: exit code. written: the requested JSON file.
    """
    if written is None or code not in (0, 1):
        return ""
    if not written.is_file():
        said = last_line(result.stderr) or last_line(result.stdout) or "no output"
        return f"{ending(code)} without the result that --json asks for, so it did not finish: {said}"
    try:
        find_records(written)
    except DataError as error:
        return str(error)
    return ""


def _failed(outcome: dict[str, Any], result: StepResult) -> str:
    if outcome["code"] != 0:
        said = last_line(result.stderr) or last_line(result.stdout) or "no output"
        native = " (`python -X faulthandler` shows where)" if crashed(outcome["code"]) else ""
        return f"{ending(outcome['code'])}{native}: {said}"
    if left := outcome["left"]:
        names = ", ".join(map(repr, left))
        return f"left processes behind, which were killed: {names}; wait for all it starts"
    return ""
