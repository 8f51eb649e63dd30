"""Describe how a process ended, and detect stopped processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from utils.pipeline.launch.rank_watcher import is_stopped as is_stopped

NATIVE = ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGILL", "SIGBUS")
"""Signals that end a process because of an error in native code."""


def how_ended(code: int) -> str:
    """Describe an exit code; a negative one is minus the number of the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"{name}, a crash in native code" if name in NATIVE else name


def crashed(code: int | None) -> bool:
    """Return whether an exit code is that of a crash in native code."""
    return code is not None and how_ended(code).endswith("native code")


class Stopped:
    """Detects processes (``pids``) that stay stopped: in ``looks`` consecutive checks, one per second.

    Counts its own checks and not time, so that a job that is stopped and continued as a whole loses no process.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], looks: int = 20) -> None:
        self._pids, self._looks = pids, looks
        self._seen: dict[int, int] = {}
        self._next = time.monotonic() + 1.0

    def __call__(self) -> int | None:
        """Return the id of a process that stayed stopped; ``None``: there is none."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + 1.0
        self._seen = {pid: self._seen.get(pid, 0) + 1 for pid in self._pids() if is_stopped(pid)}
        return next((pid for pid, count in self._seen.items() if count >= self._looks), None)
