"""Monitoring of the supervisors by the check: a step may stop or kill any process it can see.

A stopped supervisor (SIGSTOP) neither reports nor ends processes; so the check detects this, has a deadline, and kills
the whole tree below it: while the supervisor lives, stopped or not, its descendants remain below it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from model_config.run.supervisor import descendants
from utils.pipeline.launch.exit_status import is_stopped

LATE = 30.0
"""Seconds after all limits of a step until its supervisor is considered lost."""

_LOOK = 0.5
"""Seconds between two samples of whether a process is stopped; two consecutive ones count."""

_REPORT = 65536
"""Maximum bytes of a report; typical are a few hundred."""

_READING = 5.0
"""Timeout in seconds for the rest of a report after its start."""

_KILLING = 10.0
"""Seconds to wait for killed processes."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>

_KINDS: dict[str, Any] = {
    "code": (int, type(None)),
    "why": str,
    "peak": int,
    "cpu": (int, float),
    "count": int,
    "left": list,
}


class Stops:
    """Detector of processes that are stopped by a signal, or traced, for longer than a moment."""

    def __init__(self, pids: Callable[[], tuple[int, ...]]) -> None:
        self._pids = pids
        self._next = time.monotonic() + _LOOK
        self._seen: set[int] = set()

    def __call__(self) -> bool:
        """Sample again if the last sample is old enough; return whether a process is stopped."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK
        found = {pid for pid in self._pids() if is_stopped(pid)}
        both, self._seen = found & self._seen, found
        return bool(both)


def report_comes(report: int, stops: Stops, stop: Callable[[], bool], seconds: float) -> str:
    """Wait for a supervisor's report; return the reason for giving up, empty if the report has arrived.

    Args:
        report: file descriptor of the report. stops: monitors the supervisor.
        stop: returns whether the check is to stop. seconds: the deadline.

    Raises:
        KeyboardInterrupt: ``stop`` returned true.
    """
    deadline = time.monotonic() + seconds
    while not select.select([report], [], [], 0.1)[0]:
        if stop():
            raise KeyboardInterrupt
        if stops():
            return "stopped by a signal (SIGSTOP), and killed with the step"
        if time.monotonic() > deadline:
            return f"unresponsive {LATE:g} s after the step's time limit, and killed with the step"
    return ""


def read_report(report: int) -> bytes:
    """Return the report of a supervisor; it may be incomplete if another process keeps the pipe open."""
    said, deadline = b"", time.monotonic() + _READING
    while len(said) < _REPORT and select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(report, _REPORT)
        if not chunk:
            break
        said += chunk
    return said


def parsed(said: bytes) -> dict[str, Any] | None:
    """Return a report as data; ``None`` if it is invalid: a step can write to any pipe of its user."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Mapping) or set(found) != set(_KINDS):
        return None
    return dict(found) if all(isinstance(found[name], kind) for name, kind in _KINDS.items()) else None


def end_tree(top: int, mark: bytes) -> None:
    """Kill all descendants of a process, and then the process itself.

    The process is stopped meanwhile: it still adopts orphans, but starts nothing.

    Args:
        top: its process ID. mark: part of its environment; without it the ID belongs to another process.
    """
    if not _has(top, mark):
        return
    deadline = time.monotonic() + _KILLING
    with suppress(OSError):
        os.kill(top, signal.SIGSTOP)
        while (alive := descendants(top)) and time.monotonic() < deadline:
            _kill(alive)
            time.sleep(0.002)
        os.kill(top, signal.SIGKILL)


def sweep(mark: bytes) -> None:
    """Kill every process whose environment contains a mark, after a step has killed its supervisor."""
    for folder in Path("/proc").glob("[0-9]*"):
        if _has(int(folder.name), mark):
            _kill([int(folder.name)])


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return False


def _kill(pids: Any) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


_known: set[int] = set()
_starting = threading.Lock()
_adopts = threading.Event()


def started(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a process of the check in a new session; adopted processes that are not registered belong to steps."""
    with _starting:
        process = subprocess.Popen(command, start_new_session=True, **how)
        _known.add(process.pid)
    return process


def forgotten(pid: int) -> None:
    """Unregister a process of the check that has been waited for."""
    _known.discard(pid)


def sweep_adopted() -> None:
    """Kill the adopted processes of steps that killed their supervisor, whatever their environment."""
    if not _adopts.is_set():
        return
    me, session = os.getpid(), os.getsid(0)
    deadline = time.monotonic() + _KILLING
    while time.monotonic() < deadline:
        found = []
        with _starting, suppress(OSError):
            for pid, process in descendants(me).items():
                if process.parent == me and pid not in _known and os.getsid(pid) != session:
                    found += [pid, *descendants(pid)]
        if not found:
            return
        _kill(found)
        time.sleep(0.002)


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt the remaining processes of steps that killed their supervisor, and kill them at the end of the block.

    For a process that runs only the check.
    """
    if sys.platform != "linux":
        yield
        return
    import ctypes

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    _adopts.set()
    try:
        yield
    finally:
        sweep_adopted()
        _adopts.clear()
        ctypes.CDLL(None).prctl(_SUBREAPER, 0, 0, 0, 0)
