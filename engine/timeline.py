"""Recorded spans of work; every time the zoo prints is derived from a timeline, so times are consistent."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Span(NamedTuple):
    """One piece of work: ``stage`` from ``start`` to ``end`` (``time.perf_counter`` seconds) on ``samples`` samples."""

    stage: str
    start: float
    end: float
    samples: int
    lane: str


class Timeline:
    """A bounded record of spans with exact totals per stage; thread-safe.

    Only the newest ``keep`` spans are stored; totals, counts and sample sums cover all spans.
    """

    def __init__(self, keep: int = 10_000) -> None:
        self.spans: deque[Span] = deque(maxlen=keep)
        self._totals: dict[str, tuple[float, int, int]] = {}
        self._amounts: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, start: float, end: float, samples: int = 0, lane: str = "host") -> None:
        """Record one span."""
        with self._lock:
            seconds, count, total = self._totals.get(stage, (0.0, 0, 0))
            self._totals[stage] = (seconds + (end - start), count + 1, total + samples)
            self.spans.append(Span(stage, start, end, samples, lane))

    def extend(self, spans: Sequence[Span]) -> None:
        """Record several spans, in order."""
        with self._lock:
            for stage, start, end, samples, _ in spans:
                seconds, count, total = self._totals.get(stage, (0.0, 0, 0))
                self._totals[stage] = (seconds + (end - start), count + 1, total + samples)
            self.spans.extend(spans)

    def forked(self) -> None:
        """Replace the lock in the child of a fork: another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def gain(self, what: str, amount: float) -> None:
        """Add an amount, such as seconds of sound or tokens."""
        with self._lock:
            self._amounts[what] = self._amounts.get(what, 0.0) + amount

    def amount(self, what: str) -> float:
        """Return the sum of an amount (0.0 if none was added)."""
        return self._amounts.get(what, 0.0)

    def seconds(self, stage: str) -> float:
        """Return the summed duration of a stage in seconds (0.0 for an unknown stage)."""
        return self._totals.get(stage, (0.0, 0, 0))[0]

    def count(self, stage: str) -> int:
        """Return how many spans a stage has."""
        return self._totals.get(stage, (0.0, 0, 0))[1]

    def stages(self) -> list[str]:
        """Return the stages that have a span."""
        with self._lock:
            return list(self._totals)

    def samples(self, stage: str) -> int:
        """Return the number of samples of a stage."""
        return self._totals.get(stage, (0.0, 0, 0))[2]

    def mean(self, stage: str) -> float:
        """Return the mean duration of a stage in seconds (0.0 for an unknown stage)."""
        seconds, count, _ = self._totals.get(stage, (0.0, 0, 0))
        return seconds / count if count else 0.0

    def adopt(self, stage: str, other: Timeline, theirs: str, seconds: float, count: int, samples: int) -> None:
        """Add the newest ``count`` spans of another timeline's stage ``theirs`` as this one's ``stage``.

        ``seconds`` and ``samples`` are their totals, since not all of the spans may still be stored.
        """
        if not count:
            return
        held = [span for span in list(other.spans) if span.stage == theirs][-count:]
        with self._lock:
            have = self._totals.get(stage, (0.0, 0, 0))
            self._totals[stage] = (have[0] + seconds, have[1] + count, have[2] + samples)
            self.spans.extend(span._replace(stage=stage) for span in held)

    def clear(self) -> None:
        """Delete everything recorded so far."""
        with self._lock:
            self.spans.clear()
            self._totals.clear()
            self._amounts.clear()

    def chrome_trace(self, note: str = "") -> dict[str, Any]:
        """Return the stored spans as a Chrome trace (JSON types; times in microseconds) for Perfetto.

        Every lane becomes a process, its name followed by ``note``, and every stage a thread in it, so that overlapping
        stages of a lane are shown in separate rows.
        """
        with self._lock:
            spans = list(self.spans)
        lanes = {lane: i for i, lane in enumerate(sorted({span.lane for span in spans}), 1)}
        stages = {stage: i for i, stage in enumerate(dict.fromkeys(span.stage for span in spans), 1)}
        rows = sorted({(lanes[span.lane], stages[span.stage], span.stage) for span in spans})
        events = [_named("process_name", pid, 0, f"{lane} ({note})" if note else lane) for lane, pid in lanes.items()]
        events += [_named("thread_name", pid, tid, stage) for pid, tid, stage in rows]
        for stage, start, end, samples, lane in spans:
            place = {"pid": lanes[lane], "tid": stages[stage], "ts": start * 1e6, "dur": (end - start) * 1e6}
            events.append({"name": stage, "ph": "X", **place, "args": {"samples": samples} if samples else {}})
        return {"displayTimeUnit": "ms", "traceEvents": events}


_recorder = threading.local()


@contextmanager
def recording(timeline: Timeline, lane: str = "host") -> Iterator[None]:
    """Record the :func:`stage` blocks of this thread in ``timeline`` inside the ``with`` block."""
    before = getattr(_recorder, "target", None)
    _recorder.target = (timeline, lane)
    try:
        yield
    finally:
        _recorder.target = before


def is_recording() -> bool:
    """Return whether this thread's stages are recorded; if not, :func:`stage` does nothing."""
    return getattr(_recorder, "target", None) is not None


@contextmanager
def stage(name: str, samples: int = 1) -> Iterator[None]:
    """Record the ``with`` block as a span of stage ``name`` if this thread is recorded."""
    target = getattr(_recorder, "target", None)
    if target is None:
        yield
        return
    start = time.perf_counter()
    try:
        yield
    finally:
        timeline, lane = target
        timeline.add(name, start, time.perf_counter(), samples, lane)


def record(*pieces: tuple[str, float, float]) -> None:
    """Record pieces of work on one sample if this thread is recorded: stage, start and end (``time.perf_counter``).

    For stages of microseconds, which a ``with`` block would make noticeably longer.
    """
    target = getattr(_recorder, "target", None)
    if target is not None:
        timeline, lane = target
        timeline.extend([Span(stage, start, end, 1, lane) for stage, start, end in pieces])


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
