"""The check's own watch over those who watch the steps: a step may stop or kill what it can see.

A supervisor that is stopped (SIGSTOP) neither reports nor ends anything; so the check looks at it, has a deadline of
its own, and ends the whole tree below it: while the supervisor lives, stopped or not, no descendant gets away from it.
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
"""Seconds beyond all limits of a step after which its supervisor is taken for lost."""

_LOOK = 0.5
"""Seconds between two looks at whether a process is stopped; two in a row count."""

_REPORT = 65536
"""Bytes of a report at most; one has some hundred."""

_READING = 5.0
"""Seconds in which all of a report must come once it has begun."""

_KILLING = 10.0
"""Seconds after which processes that do not die are given up."""

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
    """Tells whether one of several processes has been stopped by a signal, or is traced, for longer than a moment."""

    def __init__(self, pids: Callable[[], tuple[int, ...]]) -> None:
        self._pids = pids
        self._next = time.monotonic() + _LOOK
        self._seen: set[int] = set()

    def __call__(self) -> bool:
        """Look, where the last look is some time ago."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK
        found = {pid for pid in self._pids() if is_stopped(pid)}
        both, self._seen = found & self._seen, found
        return bool(both)


def report_comes(report: int, stops: Stops, stop: Callable[[], bool], seconds: float) -> str:
    """Wait for a supervisor's report; return why it is not waited for any longer, nothing where it is there.

    Args:
        report: the file descriptor it comes from. stops: looks at the supervisor.
        stop: says that the check is to end. seconds: the deadline.

    Raises:
        KeyboardInterrupt: ``stop`` said so.
    """
    deadline = time.monotonic() + seconds
    while not select.select([report], [], [], 0.1)[0]:
        if stop():
            raise KeyboardInterrupt
        if stops():
            return "stopped by a signal (SIGSTOP), and killed with the step"
        if time.monotonic() > deadline:
            return f"silent {LATE:g} s after the step's limit of time, and killed with the step"
    return ""


def read_report(report: int) -> bytes:
    """Return what a supervisor has written; not all of it where another process keeps the pipe open."""
    said, deadline = b"", time.monotonic() + _READING
    while len(said) < _REPORT and select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(report, _REPORT)
        if not chunk:
            break
        said += chunk
    return said


def parsed(said: bytes) -> dict[str, Any] | None:
    """Return a report as data; ``None`` where it is none: a step can write to any pipe of its user."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Mapping) or set(found) != set(_KINDS):
        return None
    return dict(found) if all(isinstance(found[name], kind) for name, kind in _KINDS.items()) else None


def end_tree(top: int, mark: bytes) -> None:
    """Kill all descendants of a process, and then the process itself.

    It is stopped meanwhile: it adopts what they leave behind, and starts nothing.

    Args:
        top: its number. mark: part of its environment; without it the number belongs to another process by now.
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
    """Kill every process whose environment holds a mark: what is left by a step that has killed its supervisor."""
    for folder in Path("/proc").glob("[0-9]*"):
        if _has(int(folder.name), mark):
            _kill([int(folder.name)])


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is someone else's
        return False


def _kill(pids: Any) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


_known: set[int] = set()
_starting = threading.Lock()
_adopts = threading.Event()


def started(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a process of the check's own in a session of its own; those it does not know are what steps left.

    Args:
        command, how: as ``subprocess.Popen`` takes them.
    """
    with _starting:
        process = subprocess.Popen(command, start_new_session=True, **how)
        _known.add(process.pid)
    return process


def forgotten(pid: int) -> None:
    """Forget a process of the check's own that has been waited for."""
    _known.discard(pid)


def sweep_adopted() -> None:
    """Kill what this process has adopted: what a step left that killed its supervisor, whatever its environment."""
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
    """Adopt what steps leave behind that have killed their supervisor, and end it at the end of the block.

    For a process that is the check and nothing else.
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
