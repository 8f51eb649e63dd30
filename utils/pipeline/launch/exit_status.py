"""How processes end, or stop: in words, for those who wait for them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from utils.pipeline.launch.rank_watcher import is_stopped as is_stopped

NATIVE = ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGILL", "SIGBUS")
"""Signals of which a process dies by a mistake in native code: a runtime's, not the script's."""


def how_ended(code: int) -> str:
    """Return an exit code in words; one below 0 is minus the number of the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"{name}, a crash in native code" if name in NATIVE else name


def crashed(code: int | None) -> bool:
    """Say whether an exit code is that of a crash in native code."""
    return code is not None and how_ended(code).endswith("native code")


class Stopped:
    """Tells of processes that are stopped for longer than somebody looks into them.

    It counts its own looks, so that a job that is stopped and continued as a whole loses nobody.

    Args:
        pids: gives the processes. looks: how many in a row must find one stopped; there is one per second.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], looks: int = 20) -> None:
        self._pids, self._looks = pids, looks
        self._seen: dict[int, int] = {}
        self._next = time.monotonic() + 1.0

    def __call__(self) -> int | None:
        """Return the number of one that has been stopped all the time; ``None`` where there is none."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + 1.0
        self._seen = {pid: self._seen.get(pid, 0) + 1 for pid in self._pids() if is_stopped(pid)}
        return next((pid for pid, count in self._seen.items() if count >= self._looks), None)
