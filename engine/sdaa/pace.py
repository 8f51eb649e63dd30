"""Pacing of the simulated card: a call returns when its simulated end is reached on the wall clock.

Off by default. ``EngineSpec(paced=True)``, ``tecoexec --paced`` or ``TECO_SIM_PACED=1`` turn it on, so that load tests
and servers wait for a call as long as they would on the card. The simulated clock then advances with the wall clock
between calls, too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from tecoinfer_modelzoo.errors import ConfigError, EngineError

PACED_VARIABLE = "TECO_SIM_PACED"
"""Environment variable that paces every simulated card: ``1`` or ``0`` (default)."""

LATE = 1e-3
"""Seconds after its simulated end from which a call counts as late: the host computed too slowly."""


def paced_by_environment() -> bool:
    """Return whether ``TECO_SIM_PACED`` is set to 1; raise ConfigError unless it is 0, 1, empty or not set."""
    text = os.environ.get(PACED_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ConfigError(f"environment variable {PACED_VARIABLE}={text!r} must be 0 or 1")
    return text == "1"


class Pace:
    """Aligns the simulated clock of a card with a wall clock; both in seconds.

    The two clocks are aligned at the first :meth:`now`. Any number of threads may wait at once.

    Args:
        clock: returns the wall time in seconds, monotonic.
        sleep: waits for some seconds, and returns early if the engine is cancelled; ``None``: by a condition of the
            operating system.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], object] | None = None
    ) -> None:
        self._cancelled = threading.Event()
        self._clock, self._sleep = clock, sleep or self._cancelled.wait
        self._lock = threading.Lock()
        self._origin: float | None = None
        self.calls = self.late = 0
        self.worst = 0.0

    def now(self, simulated: float) -> float:
        """Return the simulated time that corresponds to the wall clock, but at least ``simulated``, in seconds."""
        with self._lock:
            wall = self._clock()
            if self._origin is None:
                self._origin = wall - simulated
            return max(simulated, wall - self._origin)

    def wait(self, end: float) -> None:
        """Sleep until the simulated time ``end`` in seconds; return at once if it has passed, and count the call.

        Raise EngineError if the engine was cancelled meanwhile.
        """
        origin = self._origin or 0.0
        behind = self._clock() - origin - end
        with self._lock:
            self.calls += 1
            self.late += behind > LATE
            self.worst = max(self.worst, behind)
        while (left := end - (self._clock() - origin)) > 0:
            if self._cancelled.is_set():
                raise EngineError("a paced call was cancelled before its simulated end")
            self._sleep(left)

    def cancel(self) -> None:
        """End the waits of running calls, which raise EngineError."""
        self._cancelled.set()

    def report(self) -> dict[str, float]:
        """Return the calls, those late by more than :data:`LATE` seconds, and the longest delay in wall seconds."""
        return {"calls": self.calls, "late_calls": self.late, "longest_delay_s": max(0.0, self.worst)}
