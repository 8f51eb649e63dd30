"""Spans of work. Every time the zoo prints is derived from a timeline, so the figures cannot contradict each other."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple


class Span(NamedTuple):
    """One piece of work: ``stage`` from ``start`` to ``end`` (``time.perf_counter`` seconds) on ``samples`` samples."""

    stage: str
    start: float
    end: float
    samples: int
    lane: str


class Timeline:
    """A bounded record of spans with exact totals per stage; safe to use from several threads.

    Only the newest ``keep`` spans are held, so a run over any number of samples needs the same memory; totals, counts
    and sample sums always cover every span.
    """

    def __init__(self, keep: int = 10_000) -> None:
        self.spans: deque[Span] = deque(maxlen=keep)
        self._totals: dict[str, tuple[float, int, int]] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, start: float, end: float, samples: int = 0, lane: str = "host") -> None:
        """Record one span."""
        with self._lock:
            seconds, count, total = self._totals.get(stage, (0.0, 0, 0))
            self._totals[stage] = (seconds + (end - start), count + 1, total + samples)
            self.spans.append(Span(stage, start, end, samples, lane))

    def seconds(self, stage: str) -> float:
        """Return the summed duration of a stage in seconds (0.0 for a stage never seen)."""
        return self._totals.get(stage, (0.0, 0, 0))[0]

    def count(self, stage: str) -> int:
        """Return how many spans a stage has."""
        return self._totals.get(stage, (0.0, 0, 0))[1]

    def samples(self, stage: str) -> int:
        """Return how many samples went through a stage."""
        return self._totals.get(stage, (0.0, 0, 0))[2]

    def mean(self, stage: str) -> float:
        """Return the mean duration of a stage in seconds (0.0 for a stage never seen)."""
        seconds, count, _ = self._totals.get(stage, (0.0, 0, 0))
        return seconds / count if count else 0.0

    def clear(self) -> None:
        """Forget everything recorded so far."""
        with self._lock:
            self.spans.clear()
            self._totals.clear()
