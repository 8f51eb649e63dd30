"""The devices of the card: health, memory, faults and clock (simulated seconds) of every SPA, and scheduling."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from engine.sdaa.card import CardDescription
from engine.sdaa.cost import IO_BUFFERS, ShardCost
from engine.sdaa.faults import Fault
from engine.sdaa.pace import Pace
from engine.sdaa.status import DeviceStatus
from engine.sdaa.tables import FIXED, megabytes
from engine.signature import Array
from engine.timeline import Span, Timeline
from tecoinfer_modelzoo.errors import DeviceError, DeviceOutOfMemory, EngineError

Compute = Callable[[Sequence[Array]], list[Array]]
Shard = Sequence[Array]
Remedy = Callable[[ShardCost], str]  # return how to make a cost fit, as the end of an error message


class Instance(NamedTuple):
    """The cost of one shard on a SPA, and the function that computes its values."""

    cost: ShardCost
    compute: Compute


OK, LOST, NO_HEARTBEAT = "OK", "DEVICE_LOST", "HEARTBEAT_ERROR"
STAGES = ("copy in", "compute", "copy out")  # names of a shard's phases in the card's timeline


class ShardTimes(NamedTuple):
    """Start and end of a shard's copy in, computing and copy out, in simulated seconds."""

    copy_in: tuple[float, float]
    compute: tuple[float, float]
    copy_out: tuple[float, float]

    @property
    def end(self) -> float:
        """When the results are on the host."""
        return self.copy_out[1]


class CallTimes(NamedTuple):
    """Simulated times of one call to the whole card, in seconds.

    ``submitted`` is when the host submitted it, ``started`` when the first copy began. Each phase is that of the SPA
    that spends most time in it, summed over its shards of the call.
    """

    submitted: float
    started: float
    completed: float
    copy_in: float
    compute: float
    copy_out: float

    @property
    def latency(self) -> float:
        """From the submission to the last result, including the wait for queued calls."""
        return self.completed - self.submitted


class SpaClock:
    """Two copy engines and the compute array of one SPA: each runs one operation at a time, all three concurrently.

    A copy in needs a free input buffer, and computing a free output buffer: with two of each, call ``i`` is not copied
    in before call ``i - 2`` has been computed, nor computed before the results of call ``i - 2`` have been copied out.
    """

    def __init__(self) -> None:
        self._copy_in = self._compute = self._copy_out = 0.0
        self._computed: deque[float] = deque([0.0] * IO_BUFFERS, maxlen=IO_BUFFERS)
        self._copied: deque[float] = deque([0.0] * IO_BUFFERS, maxlen=IO_BUFFERS)

    @property
    def free(self) -> float:
        """Simulated time in seconds from which the compute array has nothing left to do."""
        return self._compute

    def schedule(self, submitted: float, copy_in: float, compute: float, copy_out: float) -> ShardTimes:
        """Schedule one shard, ``submitted`` by the host, after earlier ones; phases in simulated seconds."""
        start = max(submitted, self._copy_in, self._computed[0])
        self._copy_in = start + copy_in
        begin = max(self._copy_in, self._compute, self._copied[0])
        self._compute = begin + compute
        self._computed.append(self._compute)
        out = max(self._compute, self._copy_out)
        self._copy_out = out + copy_out
        self._copied.append(self._copy_out)
        return ShardTimes((start, self._copy_in), (begin, self._compute), (out, self._copy_out))


@dataclass(slots=True)
class Spa:
    """One compute array: holds one engine instance and runs one shard at a time."""

    index: int  # on the card, from 0
    device: int  # index on the host, as ``teco-smi`` shows it
    faults: list[Fault]
    health: str = OK  # ``OK``, ``DEVICE_LOST`` or ``HEARTBEAT_ERROR``
    used: int = 0  # bytes of allocated device memory
    shards: int = 0  # number of shards run
    busy: float = 0.0  # simulated seconds in which it had a shard, from start of copy in to end of copy out
    reported: float = 1.0  # the slowdown that was last reported
    clock: SpaClock = field(default_factory=SpaClock)
    _until: float = 0.0

    def account(self, times: ShardTimes) -> None:
        """Count a shard; time in which it overlaps the one before it counts once."""
        self.shards += 1
        self.busy += max(0.0, times.end - max(times.copy_in[0], self._until))
        self._until = max(self._until, times.end)

    def slowdown(self, step: int) -> float:
        """Return how many times slower than described the SPA is in this step."""
        factor = 1.0
        for fault in self.faults:
            factor *= fault.factor if fault.kind == "slow" and fault.strikes(step) else 1.0
        return factor

    def strike(self, kind: str, step: int) -> bool:
        """Return whether a fault of this kind is active in this step."""
        return any(fault.kind == kind and fault.strikes(step) for fault in self.faults)


class Card:
    """The SPA of one card. A call's shards are assigned to the healthy ones in turn.

    Values are computed on the host, shards in parallel on its cores; all SPA share one copy of the weights. Time is
    virtual and advances by the cost of each call: ``now`` is when the host may continue, ``elapsed`` when the last
    result was available, both in simulated seconds.

    Args:
        description: the card's figures. devices: indices of the SPA on the host.
        cost, compute: cost and values of a usual shard; :meth:`run` takes others. The memory of ``cost`` is allocated
        on
            each SPA; see :meth:`hold`.
        faults: faults to inject. threads: shards computed in parallel on the host.
        remedy: returns how to make a cost fit, for errors. model: its name in errors.
        pace: makes calls take their simulated time on the wall clock; shards then go to the SPA that is free first.
            ``None``: calls return as soon as their values are computed.

    Raise DeviceOutOfMemory if the model does not fit.
    """

    def __init__(
        self,
        description: CardDescription,
        devices: Sequence[int],
        cost: ShardCost,
        compute: Compute,
        faults: Sequence[Fault] = (),
        threads: int = 1,
        remedy: Remedy = lambda _: FIXED,
        model: str = "the model",
        pace: Pace | None = None,
    ) -> None:
        self.pace = pace
        self._scheduling = threading.Lock()
        self.description, self.usual = description, Instance(cost, compute)
        self.spas = [Spa(i, device, [f for f in faults if f.spa == i]) for i, device in enumerate(devices)]
        self.timeline = Timeline()  # simulated spans, one lane per SPA
        self.now = self.elapsed = 0.0
        self.step = 0
        self.events: list[str] = []
        self._model = model
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="spa") if threads > 1 else None
        self.memory = 0  # bytes of device memory allocated on every SPA
        self._reserved: ShardCost | None = None
        self.hold(cost, remedy)

    @property
    def healthy(self) -> list[Spa]:
        """The SPA that still accept shards."""
        return [spa for spa in self.spas if spa.health == OK]

    def hold(self, cost: ShardCost, remedy: Remedy = lambda _: FIXED) -> None:
        """Replace every SPA's allocated memory by ``cost``; raise DeviceOutOfMemory, changing nothing, if too large."""
        alone, cost = cost, _both(cost, self._reserved)
        free = self.description.memory_bytes
        if self.spas and cost.memory > free:
            parts = {"weights": cost.weights, "activations": cost.activations, "input and output buffers": cost.io}
            raise DeviceOutOfMemory(
                f"SPA {self.spas[0].index} of {self.description.name}: {self._model} needs {megabytes(cost.memory)} "
                f"({', '.join(f'{name} {megabytes(size)}' for name, size in parts.items())}), "
                f"free are {megabytes(free)}; {remedy(cost)}"
            )
        self.memory, self._held = cost.memory, alone
        for spa in self.healthy:
            spa.used = cost.memory

    def reserve(self, cost: ShardCost) -> None:
        """Allocate memory on every SPA besides :meth:`hold`, for table rows; raise DeviceOutOfMemory if too much."""
        self._reserved = cost
        self.hold(self._held, lambda _: "the tables do not fit with the rest of the model; use a smaller batch")

    def run(
        self,
        shards: Sequence[Shard],
        first_sample: int = 0,
        wait: bool = True,
        instances: Sequence[Instance] | None = None,
        pinned: bool = False,
    ) -> tuple[list[list[Array]], CallTimes]:
        """Run the shards of one call; shards of a failing SPA are computed by the others.

        Args:
            shards: in order. first_sample: number of the call's first sample in the run.
            wait: whether the host waits for the results before the next call (else calls overlap on the clock).
            instances: cost and computation of each shard; ``None``: the usual.
            pinned: shard ``i`` must run on SPA ``i``, which holds its rows; the step is that of the following run.

        Returns:
            The outputs of every shard, in order, and the simulated times of the call.

        Raises:
            DeviceError: no SPA is left, or a SPA with a pinned shard is lost; nothing of this call is returned, so the
            run
                resumes at its first sample.
            DeviceOutOfMemory: a SPA ran out of memory.
        """
        step, self.step = self.step, self.step + (not pinned)
        self._report_slow(step)
        if self.pace is not None:
            self.now = self.pace.now(self.now)
        each = instances or [self.usual] * len(shards)
        results: dict[int, list[Array]] = {}
        times: dict[int, list[ShardTimes]] = {spa.index: [] for spa in self.spas}
        submitted = self.now
        left = list(range(len(shards)))
        while left:
            if pinned:
                self._check_all(first_sample)
            with self._scheduling:
                done = self._round(left, step, each, times, first_sample, pinned)
            computed = self._map([(spa, shards[i], step, each[i].compute) for i, spa in done])
            results.update(zip((i for i, _ in done), computed, strict=True))
            left = [i for i in left if i not in results]
        call = _call(submitted, list(filter(None, times.values())))
        self.elapsed = max(self.elapsed, call.completed)
        if self.pace is not None:
            self.pace.wait(call.completed)
        elif wait:
            self.now = call.completed
        return [results[i] for i in range(len(shards))], call

    def _check_all(self, first_sample: int) -> None:
        """Refuse a call that needs every SPA if one is lost."""
        if len(self.healthy) < len(self.spas):
            raise DeviceError(
                f"a SPA of {self.description.name} with rows of tables is lost ({self._states()}); the "
                f"{first_sample} samples before this call are done: resume at sample {first_sample}"
            )

    def _round(
        self,
        left: Sequence[int],
        step: int,
        each: Sequence[Instance],
        times: Mapping[int, list[ShardTimes]],
        first_sample: int,
        pinned: bool,
    ) -> list[tuple[int, Spa]]:
        """Schedule the shards ``left`` (indices) on the healthy SPA in turn; return those accepted, with their SPA."""
        healthy = self.healthy
        if self.pace is not None and not pinned:  # calls run side by side
            healthy.sort(key=lambda spa: spa.clock.free)
        if not healthy:
            raise DeviceError(
                f"no SPA of {self.description.name} is left ({self._states()}); the {first_sample} samples before "
                f"this call are done: resume at sample {first_sample}"
            )
        done: list[tuple[int, Spa]] = []
        spans: list[Span] = []
        at = self.now  # later than submitted if the host had to wait for a SPA that hangs
        try:
            for n, i in enumerate(left):
                spa = healthy[n % len(healthy)]
                scheduled = self._schedule(spa, step, at, each[i].cost)
                if scheduled is not None:
                    times[spa.index].append(scheduled)
                    done.append((i, spa))
                    spans += [Span(s, *t, 0, f"SPA {spa.index}") for s, t in zip(STAGES, scheduled, strict=True)]
        finally:
            self.timeline.extend(spans)
        return done

    def _map(self, jobs: Sequence[tuple[Spa, Shard, int, Compute]]) -> list[list[Array]]:
        """Compute shards in parallel, one of the threads being this one."""
        if self._pool is None or len(jobs) < 2:
            return [self._values(*job) for job in jobs]
        results: dict[int, list[Array]] = {}
        todo = iter(enumerate(jobs))

        def work() -> None:
            for i, job in todo:  # the iterator yields every job once over all threads
                results[i] = self._values(*job)

        helpers = [self._pool.submit(work) for _ in range(min(self._threads, len(jobs)) - 1)]
        try:
            work()
        finally:
            for helper in helpers:
                if not helper.cancel():
                    helper.result()
        return [results[i] for i in range(len(jobs))]

    def _schedule(self, spa: Spa, step: int, at: float, cost: ShardCost) -> ShardTimes | None:
        """Schedule a shard on a SPA; return ``None`` if the SPA fails and the shard remains."""
        if spa.health != OK:
            return None  # failed on an earlier shard of this round
        if spa.strike("oom", step):
            raise DeviceOutOfMemory(
                f"SPA {spa.index} of {self.description.name} ran out of memory in step {step} (injected fault)"
            )
        if spa.strike("lose", step):
            self._fail(spa, LOST, step)
            return None
        if spa.strike("hang", step):
            self.now = max(self.now, at + self.description.heartbeat_ms * 1e-3)  # until it counts as lost
            self._fail(spa, NO_HEARTBEAT, step)
            return None
        slow = spa.slowdown(step)
        times = spa.clock.schedule(at, cost.copy_in * slow, cost.compute * slow, cost.copy_out * slow)
        spa.account(times)
        return times

    def _values(self, spa: Spa, shard: Shard, step: int, compute: Compute) -> list[Array]:
        values = compute(shard)
        if spa.strike("nan", step):
            return [np.full_like(array, np.nan) if array.dtype.kind == "f" else array for array in values]
        return values

    def _report_slow(self, step: int) -> None:
        """Report each SPA slower than described from this step on, by the simulated clock, even without a shard."""
        for spa in self.spas:
            if not spa.faults or spa.health != OK or (factor := spa.slowdown(step)) <= spa.reported:
                continue
            spa.reported = factor
            self._report(
                f"SPA {spa.index} of {self.description.name}: SLOW in step {step}; {factor:g} times slower than "
                "described from then on (simulated)"
            )

    def _report(self, event: str) -> None:
        self.events.append(event)
        warnings.warn(event, stacklevel=2)

    def _fail(self, spa: Spa, health: str, step: int) -> None:
        spa.health, spa.used = health, 0
        left = len(self.healthy)
        what = f"SPA {spa.index} of {self.description.name}: {health} in step {step}"
        gone = (
            f"its shards go to the {left} SPA left" if self._reserved is None else "the rows of tables on it are gone"
        )
        self._report(f"{what}; {gone}")

    def statuses(self, busy: float) -> list[DeviceStatus]:
        """Return every SPA's status for ``teco-smi``; ``busy``: share of simulated time the healthy ones compute."""
        return [DeviceStatus(s.device, s.health, s.used, busy if s.health == OK else 0.0) for s in self.spas]

    def _states(self) -> str:
        return ", ".join(f"SPA {spa.index} {spa.health}" for spa in self.spas)

    def close(self) -> None:
        """Free the memory of every SPA, and what computes for it, and end the host threads."""
        self.usual = self.usual._replace(compute=_closed)
        for spa in self.spas:
            spa.used = 0
        if self._pool is not None:
            self._pool.shutdown()


def _closed(_: Sequence[Array]) -> list[Array]:
    raise EngineError("the card was closed; open a new engine")


def _both(cost: ShardCost, reserved: ShardCost | None) -> ShardCost:
    """Return a cost with the memory of another one: their activations are never live at the same time."""
    if reserved is None:
        return cost
    activations = max(cost.activations, reserved.activations)
    return replace(cost, weights=cost.weights + reserved.weights, activations=activations, io=cost.io + reserved.io)


def _call(submitted: float, times: Sequence[Sequence[ShardTimes]]) -> CallTimes:
    """Return the times of a call: the phases of each SPA summed over its shards, then the slowest SPA."""
    slowest = [
        max(sum(end - start for start, end in (s[phase] for s in spans)) for spans in times) for phase in range(3)
    ]
    started = min(spans[0].copy_in[0] for spans in times)
    return CallTimes(submitted, started, max(spans[-1].end for spans in times), *slowest)
