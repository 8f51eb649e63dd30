"""Running a case: one process per step, in a copy of the model's folder.

The copy keeps the checkout as it is: the export writes its files there, and it goes when the case is done.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from engine import DataError, read_regular, remove_tree
from model_config.cases.config import Case, Command
from model_config.results import StepResult
from model_config.run.closing import closing, last_line, said_of_nan
from model_config.run.output import Drain, new_file
from model_config.run.preloaded import MARK, Forked, Preloaded, Process
from model_config.run.watch import (
    LATE,
    Stops,
    end_tree,
    forgotten,
    parsed,
    read_report,
    report_comes,
    started,
    sweep,
    sweep_adopted,
)
from model_config.run.workplace import workplace
from model_config.structure.requirements import required
from model_config.written import settle
from tecoinfer_modelzoo import python_path
from utils.pipeline.launch.ends import crashed, how_ended
from utils.pipeline.records.names import find_records

__all__ = [
    "Limits",
    "Slot",
    "StepResult",
    "default_memory",
    "run_step",
    "workplace",
]

_MIB, _GIB = 2**20, 2**30
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_REFUSED = re.compile(r"--(json|save)\b")

_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 * _GIB)}
"""Has glibc use freed memory again: to give it back and fault it in took most of the time of large networks."""

_PATIENCE = 10.0
"""Seconds in which the rest of the output must come when the step has ended."""

_ENDING = 15.0
"""Seconds in which a supervisor must have ended a step that it was told to end, and itself."""

OnOutput = Callable[[str, str, str], None]
"""Gets case, step and a line the step printed; called from threads, one line at a time per stream."""


def default_memory() -> int:
    """Return the bytes a step may hold unless told otherwise: 8 GiB, or three quarters of a smaller machine."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            sizes.append(int(Path(name).read_text(encoding="ascii")))
    return min(8 * _GIB, min(sizes) * 3 // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may use before it is killed.

    Attributes:
        timeout: seconds of wall time.
        memory: bytes that the step and all it starts hold together.
        processes: of the step at once, itself included.
        output: bytes on standard output, and as many on standard error.
        grace: seconds in which what a step started must end after it.
    """

    timeout: float = 600.0
    memory: int = field(default_factory=default_memory)
    processes: int = 200
    output: int = 10 * _MIB
    grace: float = 1.0


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a case runs.

    Attributes:
        cores: their numbers; empty for all there are.
        stop: the signal to leave.
        exports: runs the exports that need torch, where they share its import.
        others: runs all other steps, where they share their imports.
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
) -> StepResult:
    """Run one step in a tree of :func:`workplace` and judge what it did.

    Example steps get ``--json``, and the single step ``--save``, for ``result`` and ``pictures``; a script that refuses
    these flags, as historical ones do, is run again without them.

    Args:
        case, step: what to run.
        tree: the tree; the model's folder is below it.
        logs: folder of the logs; made where it is missing.
        limits: what the step may use.
        extra: arguments that follow the step's own, and so win: ``("--target", "onnx")``. Its ``--json FILE`` (an
            absolute path) is kept.
        name: name of the result and of the log files; default: the step's.
        on_output: gets every line as it is printed.
        slot: where to run; default: on all cores, until done.

    Raises:
        KeyboardInterrupt: Ctrl-C, or ``slot.stop`` was set; nothing of the step is left.
    """
    logs.mkdir(parents=True, exist_ok=True)
    logs = logs.resolve()
    name = name or step.name
    asked = _asked(step, logs / name, extra)
    run = _Run(case, step, tree, limits, on_output, slot or Slot())
    result = run(_not_run(case, step, logs, name, (*extra, *asked)), (*extra, *asked))
    if asked and result.exit_code == 2 and _REFUSED.search(result.reason):
        result = run(_not_run(case, step, logs, name, tuple(extra)), extra)
    return result


def _asked(step: Command, stem: Path, extra: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that have an example step write down what it found."""
    if step.name == "export":
        return ()
    save = ("--save", f"{stem}.pictures") if step.name == "single" else ()
    return save if "--json" in extra else ("--json", f"{stem}.json", *save)


def _not_run(case: Case, step: Command, logs: Path, name: str = "", extra: tuple[str, ...] = ()) -> StepResult:
    command = (sys.executable, step.run_file, *step.arguments, *extra)
    name = name or step.name
    files = logs / f"{name}.stdout", logs / f"{name}.stderr"
    return StepResult(case.name, name, command, False, 0.0, None, "not run", *files)


@dataclass(frozen=True, slots=True)
class _Run:
    """One step, ready to run once or twice."""

    case: Case
    step: Command
    tree: Path
    limits: Limits
    on_output: OnOutput | None
    slot: Slot

    def __call__(self, result: StepResult, given: Sequence[str]) -> StepResult:
        """Run ``result.command`` and return the result with all that came of it.

        Args:
            result: as of a step that has not run.
            given: the words of the command that the case does not say itself; files they name are made anew.
        """
        written, folder = _following(given, "--json"), _following(given, "--save")
        promised = _writes_result(self.tree / self.case.run_dir / self.step.run_file)
        start = time.perf_counter()
        try:
            _clear(result, written, folder)
            outcome, full = self._supervised(result)
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
        trouble = full or _broken(outcome, self.limits) or nan or trouble
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
            pictures=_files(folder),
        )

    def _settled(self, result: StepResult) -> str:
        """See that what the step has written can be read, its logs included; return what was wrong with it."""
        strange = settle(result.stdout.parent, 2 * self.limits.output + _MIB)
        for log in (result.stdout, result.stderr):
            if not log.is_file():
                log.parent.mkdir(parents=True, exist_ok=True)
                log.touch()
                strange = strange or f"removed its log {log.name}; write only below the model's folder and to --json"
        return strange

    def _supervised(self, result: StepResult) -> tuple[dict[str, Any], str]:
        """Return what the supervisor reports, and why the output ended the step, if it did."""
        with ExitStack() as files:
            logs = [files.enter_context(new_file(log)) for log in (result.stdout, result.stderr)]
            reading, writing = os.pipe()
            report = files.enter_context(open(reading, "rb")).fileno()
            try:
                process, mark = self._start(result.command, writing)
            finally:
                os.close(writing)
            drains = self._drains(process, result, logs)
            lost, seconds = "interrupted", self.limits.timeout + self.limits.grace + LATE
            try:
                lost = report_comes(report, Stops(partial(_watching, process)), self.slot.stop.is_set, seconds)
            finally:
                said, code = _over(process, mark, report, lost)
                for drain in drains:
                    drain.join(_PATIENCE)
        return _outcome(said, code, lost), next((drain.trouble for drain in drains if drain.trouble), "")

    def _start(self, command: Sequence[str], report: int) -> tuple[Process, str]:
        """Start the step under a supervisor; return that, and what marks all processes of the step."""
        folder, environment = self.tree / self.case.run_dir, _environment(self.tree)
        settings = {"command": command, "cores": self.slot.cores, "report": report}
        for limit in ("timeout", "memory", "processes", "grace"):
            settings[limit] = getattr(self.limits, limit)
        export = self.step.name == "export" and "torch" in required(folder)
        shared = self.slot.exports if export else self.slot.others
        if shared is not None:
            forked = shared.start(settings, report, folder, environment)
            if forked is not None:
                return forked, shared.mark
        mark = uuid.uuid4().hex
        process = started(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(settings)],
            cwd=folder,
            env=environment | {MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(report,),
        )
        return process, mark

    def _drains(self, process: Process, result: StepResult, files: Sequence[IO[bytes]]) -> list[Drain]:
        def heard(line: str) -> None:
            if self.on_output is not None:
                self.on_output(self.case.name, result.step, line)

        def end() -> None:
            _end(process)

        drains = []
        pipes = ((process.stdout, result.stdout), (process.stderr, result.stderr))
        for (pipe, log), file in zip(pipes, files, strict=True):
            assert pipe is not None  # noqa: S101 -- both are pipes, for the type checker
            drains.append(Drain(pipe, log, file, self.limits.output, heard if self.on_output else None, end))
        for drain in drains:
            drain.start()
        return drains


def _environment(tree: Path) -> dict[str, str]:
    changes = {
        # `contrib/` has no engine of its own, so scripts there find it by the path.
        "PYTHONPATH": python_path(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # so that the log of a killed step holds all it printed
    }
    changes |= {name: value for name, value in _KEEP_MEMORY.items() if name not in os.environ}
    for name in ("TECO_CACHE_DIR", "TECO_FETCH_DIR"):
        if place := os.environ.get(name):
            changes[name] = os.path.abspath(place)  # the step starts in another folder
    return os.environ | changes


def _files(folder: Path | None) -> tuple[Path, ...]:
    """Return the files of a folder, sorted; none where there is no folder."""
    return () if folder is None else tuple(sorted(path for path in folder.glob("*") if path.is_file()))


def _clear(result: StepResult, written: Path | None, folder: Path | None) -> None:
    """See that there is a folder for the logs, and that what an earlier run has written is not taken for this one's."""
    result.stdout.parent.mkdir(parents=True, exist_ok=True)  # the step before may have removed it
    if written is not None:
        written.unlink(missing_ok=True)
    if folder is not None and folder.is_symlink():
        folder.unlink()
    elif folder is not None and folder.is_dir():
        remove_tree(folder)


def _watching(process: Process) -> tuple[int, ...]:
    """Return the processes that must not be stopped: the supervisor, and whose fork it is."""
    return (process.pid, process.server.pid) if isinstance(process, Forked) else (process.pid,)


def _over(process: Process, mark: str, report: int, lost: str) -> tuple[bytes, int]:
    """Let nothing of a step live on, and return its supervisor's report and exit code.

    Args:
        lost: why the report is not waited for; empty where it is there.
    """
    marked = f"{MARK}={mark}".encode()
    _end(process)  # does nothing to a supervisor that is done; else it ends the step at once
    if lost and (lost != "interrupted" or not select.select([report], [], [], _ENDING)[0]):
        end_tree(process.pid, marked)
    said = read_report(report)
    try:
        code = process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        end_tree(process.pid, marked)
        code = process.wait(_ENDING)
    forgotten(process.pid)
    if parsed(said) is None:
        sweep(marked)
        sweep_adopted()
    return said, code


def _end(process: Process) -> None:
    """Tell the supervisor to end the step."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _following(command: Sequence[str], flag: str) -> Path | None:
    """Return the path that follows a flag's last mention."""
    places = [place for place, word in enumerate(command[:-1]) if word == flag]
    return Path(command[places[-1] + 1]) if places else None


def _outcome(report: bytes, code: int, lost: str) -> dict[str, Any]:
    outcome = None if lost else parsed(report)
    if outcome is not None:
        return outcome
    ended = lost or ("disturbed: its report cannot be read" if report else _ending(code))
    return {"code": None, "why": "supervisor", "peak": 0, "cpu": 0.0, "count": 0, "left": [], "ended": ended}


def _broken(outcome: dict[str, Any], limits: Limits) -> str:
    """Return which limit a step broke."""
    count, limit = outcome["count"], limits.processes
    reasons = {
        "timeout": f"timed out after {limits.timeout:g} s and was killed with its child processes; make it faster",
        "processes": f"had {count} processes, more than the limit of {limit}, and was killed; start fewer",
        "supervisor": f"what watches the step was {outcome.get('ended')}; let the step kill only what it started",
    }
    if outcome["why"] in reasons:
        return reasons[outcome["why"]]
    if outcome["peak"] > limits.memory:
        killed = ", and was killed" if outcome["why"] else ""
        peak, most = _size(outcome["peak"]), _size(limits.memory)
        return f"used {peak} of memory, more than the limit of {most}{killed}; use less"
    return ""


def _writes_result(script: Path) -> bool:
    """Say whether a script is one of ``utils.pipeline.cli``, which write what ``--json`` asks for before they end.

    Others, such as historical ones, may ignore the flag.
    """
    try:
        text = read_regular(script, _MIB)
    except OSError:  # running it says what is wrong
        return False
    return b"utils.pipeline" in text and re.search(rb"\bcli\b", text) is not None


def _unwritten(code: int | None, written: Path | None, result: StepResult) -> str:
    """Return why a step that says it ran did not: 0 and 1 come after the result, and 1 is also how Python ends itself.

    Args:
        code: the exit code. written: the JSON that was asked for.
    """
    if written is None or code not in (0, 1):
        return ""
    if not written.is_file():
        said = last_line(result.stderr) or last_line(result.stdout) or "no output"
        return f"{_ending(code)} without the result that --json asks for, so it did not come to its end: {said}"
    try:
        find_records(written)
    except DataError as error:
        return str(error)
    return ""


def _failed(outcome: dict[str, Any], result: StepResult) -> str:
    if outcome["code"] != 0:
        said = last_line(result.stderr) or last_line(result.stdout) or "no output"
        native = " (`python -X faulthandler` shows where)" if crashed(outcome["code"]) else ""
        return f"{_ending(outcome['code'])}{native}: {said}"
    if left := outcome["left"]:
        names = ", ".join(map(repr, left))
        return f"left processes behind, which were killed: {names}; wait for all it starts"
    return ""


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def _ending(code: int | None) -> str:
    if code is None:
        return "killed"
    return how_ended(code) if code >= 0 else f"killed by {how_ended(code)}"
