"""Running a process of contributed code under a supervisor until it and its descendants have ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from model_config.run.limits import Limits
from model_config.run.output import Drain, new_file
from model_config.run.preloaded import MARK, Forked, Process
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
from utils.pipeline.launch.exit_status import how_ended

_MIB, _GIB = 2**20, 2**30
_SUPERVISOR = Path(__file__).with_name("supervisor.py")

_PATIENCE = 10.0
"""Timeout in seconds for the remaining output after the process has ended."""

_ENDING = 15.0
"""Timeout in seconds for a supervisor to end its process and itself."""


def settings_of(command: Sequence[str], cores: Sequence[int], limits: Limits, report: int) -> dict[str, Any]:
    """Return the settings of a supervisor; ``report`` is the file descriptor for its outcome."""
    asked = {name: getattr(limits, name) for name in ("timeout", "memory", "processes", "grace")}
    return {"command": command, "cores": cores, "report": report, **asked}


def start_alone(settings: Mapping[str, Any], cwd: Path, environment: Mapping[str, str]) -> tuple[Process, str]:
    """Start a process under its own supervisor; return the supervisor, and the mark of all processes below it."""
    mark = uuid.uuid4().hex
    process = started(
        [sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(settings)],
        cwd=cwd,
        env={**environment, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(settings["report"],),
    )
    return process, mark


def supervised(
    start: Callable[[int], tuple[Process, str]],
    logs: tuple[Path, Path],
    limits: Limits,
    stop: threading.Event,
    on_line: Callable[[str], None] | None = None,
) -> tuple[dict[str, Any], str]:
    """Run a process to its end.

    Args:
        start: starts it, given the file descriptor for the supervisor's report.
        logs: files for standard output and standard error; overwritten.
        limits: limits of its supervisor.
        stop: set to stop the check.
        on_line: called with every line that it prints.

    Returns:
        The report of the supervisor, and the reason if the output ended the process.

    Raises:
        KeyboardInterrupt: ``stop`` was set; all processes have ended.
        OSError: it could not be started.
    """
    with ExitStack() as files:
        opened = [files.enter_context(new_file(log)) for log in logs]
        reading, writing = os.pipe()
        report = files.enter_context(open(reading, "rb")).fileno()
        try:
            process, mark = start(writing)
        finally:
            os.close(writing)
        drains = _drains(process, logs, opened, limits.output, on_line)
        lost, seconds = "interrupted", limits.timeout + limits.grace + LATE
        try:
            lost = report_comes(report, Stops(partial(_watching, process)), stop.is_set, seconds)
        finally:
            said, code = _over(process, mark, report, lost)
            for drain in drains:
                drain.join(_PATIENCE)
    return _outcome(said, code, lost), next((drain.trouble for drain in drains if drain.trouble), "")


def _drains(
    process: Process,
    logs: Sequence[Path],
    files: Sequence[IO[bytes]],
    limit: int,
    on_line: Callable[[str], None] | None,
) -> list[Drain]:
    drains = []
    for pipe, log, file in zip((process.stdout, process.stderr), logs, files, strict=True):
        assert pipe is not None  # noqa: S101 -- both are pipes; for the type checker
        drains.append(Drain(pipe, log, file, limit, on_line, partial(_end, process)))
    for drain in drains:
        drain.start()
    return drains


def _watching(process: Process) -> tuple[int, ...]:
    """Return the processes that must not be stopped: the supervisor, and the process that forked it."""
    return (process.pid, process.server.pid) if isinstance(process, Forked) else (process.pid,)


def _over(process: Process, mark: str, report: int, lost: str) -> tuple[bytes, int]:
    """Kill all remaining processes, and return the supervisor's report and exit code.

    Args:
        lost: why the report is missing; empty if it was received.
    """
    marked = f"{MARK}={mark}".encode()
    _end(process)  # no effect on a finished supervisor; otherwise ends the process immediately
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
    """Make the supervisor end the processes below it."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _outcome(report: bytes, code: int, lost: str) -> dict[str, Any]:
    outcome = None if lost else parsed(report)
    if outcome is not None:
        return outcome
    ended = lost or ("disturbed: its report cannot be read" if report else ending(code))
    return {"code": None, "why": "supervisor", "peak": 0, "cpu": 0.0, "count": 0, "left": [], "ended": ended}


def broken(outcome: Mapping[str, Any], limits: Limits) -> str:
    """Return the message for an exceeded limit; empty if there is none."""
    count, limit = outcome["count"], limits.processes
    reasons = {
        "timeout": f"timed out after {limits.timeout:g} s and was killed with its child processes; make it faster",
        "processes": f"had {count} processes, more than the limit of {limit}, and was killed; start fewer",
        "supervisor": f"its supervisor was {outcome.get('ended')}; let the step kill only what it started",
    }
    if outcome["why"] in reasons:
        return reasons[outcome["why"]]
    if outcome["peak"] > limits.memory:
        killed = ", and was killed" if outcome["why"] else ""
        peak, most = _size(outcome["peak"]), _size(limits.memory)
        return f"used {peak} of memory, more than the limit of {most}{killed}; use less"
    return ""


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def ending(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "killed"
    return how_ended(code) if code >= 0 else f"killed by {how_ended(code)}"
