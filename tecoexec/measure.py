"""Timing of an engine's calls, synchronous or queued.

On a simulated device all times are the device's simulated times, and the host's wall time is reported separately. On
other targets all times are host wall times, and copies are not measured.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from engine import Array, Engine
from utils.stuck import watching

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.sdaa import CallTimes, SdaaEngine

DEPTH = 8
"""Maximum number of queued calls: enough to keep a device busy, with bounded memory."""

BLOCK = 4000
"""Number of calls after which their times are collected; engines keep the newest 10000."""


class CallRecord(NamedTuple):
    """A timed call, in seconds of the measurement's clock; copies are ``None`` if not measured.

    ``latency`` is that of the call alone, as in trtexec: copy in, computation and copy out, without waiting for others.
    """

    start: float
    end: float
    copy_in: float | None
    compute: float
    copy_out: float | None
    latency: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a measurement.

    Attributes:
        simulated: whether ``calls`` and ``elapsed`` are simulated times.
        run_sync: whether each call was synchronous.
        batch: samples per call.
        calls: the timed calls in order.
        host_seconds: host wall time of all timed calls.
        enqueue_seconds: mean host wall time to queue a call; ``None`` for synchronous calls.
    """

    simulated: bool
    run_sync: bool
    batch: int
    calls: Sequence[CallRecord]
    host_seconds: float
    enqueue_seconds: float | None

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the first call to the end of the last."""
        return max(call.end for call in self.calls) - min(call.start for call in self.calls)

    @property
    def average(self) -> float:
        """Elapsed seconds per call, the inverse of queries per second."""
        return self.elapsed / len(self.calls)

    @property
    def latency(self) -> float:
        """Mean latency in seconds."""
        return sum(call.latency for call in self.calls) / len(self.calls)

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.batch / self.average


def measure(
    engine: Engine, inputs: list[Array], batch: int, *, iterations: int, warm_up: int, run_sync: bool
) -> Measurement:
    """Call an engine ``warm_up + iterations`` times and time the latter; raise EngineError if the engine failed."""
    with watching({"model": engine}, lambda: f"{warm_up} calls to warm up, then {iterations}"):
        return _measured(engine, inputs, batch, iterations, warm_up, run_sync)


def _measured(
    engine: Engine, inputs: list[Array], batch: int, iterations: int, warm_up: int, run_sync: bool
) -> Measurement:
    for _ in range(warm_up):
        engine(inputs)  # synchronous, so that the device is idle afterwards
    if engine.simulated:
        cast("SdaaEngine", engine).card.timeline.clear()
    calls: list[CallRecord] = []
    queueing = 0.0
    begun = time.perf_counter()
    for done in range(0, iterations, BLOCK):
        count = min(BLOCK, iterations - done)
        _forget(engine)
        if run_sync:
            for _ in range(count):
                engine(inputs)
        else:
            queueing += _run_queued(engine, inputs, count)
        calls += _simulated(engine, count, run_sync) if engine.simulated else _on_host(engine)
    host = time.perf_counter() - begun
    return Measurement(engine.simulated, run_sync, batch, calls, host, None if run_sync else queueing / iterations)


def _run_queued(engine: Engine, inputs: list[Array], count: int) -> float:
    """Run the calls with at most :data:`DEPTH` queued; return the seconds spent on queueing."""
    queueing = 0.0
    waiting: deque[Future[Array | list[Array]]] = deque()
    for _ in range(count):
        if len(waiting) == DEPTH:
            waiting.popleft().result()
        before = time.perf_counter()
        waiting.append(engine.run_async(inputs))
        queueing += time.perf_counter() - before
    for future in waiting:
        future.result()
    return queueing


def _forget(engine: Engine) -> None:
    if engine.simulated:
        cast("SdaaEngine", engine).calls.clear()
    else:
        engine.timeline.clear()


def _on_host(engine: Engine) -> list[CallRecord]:
    spans = [span for span in engine.timeline.spans if span.stage == "engine"]
    return [CallRecord(s.start, s.end, None, s.end - s.start, None, s.end - s.start) for s in spans]


def _simulated(engine: Engine, count: int, run_sync: bool) -> list[CallRecord]:
    calls = list(cast("SdaaEngine", engine).calls)
    runs = len(calls) // count  # two if the engine runs padded data twice to check the padding
    return [_merged(calls[i : i + runs], run_sync) for i in range(0, len(calls), runs)]


def _merged(runs: Sequence[CallTimes], run_sync: bool) -> CallRecord:
    copy_in, compute, copy_out = (
        sum(getattr(run, phase) for run in runs) for phase in ("copy_in", "compute", "copy_out")
    )
    start, end = runs[0].submitted if run_sync else runs[0].started, runs[-1].completed
    return CallRecord(start, end, copy_in, compute, copy_out, end - start if run_sync else copy_in + compute + copy_out)
