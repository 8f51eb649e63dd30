"""The front of both loops: preprocess batches ahead of the engine, in order, and lose no sample to a bad one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, TecoInferError, Timeline, host_slots, recording, usable_cores
from utils.datasets.base import Batch, pick
from utils.pipeline.front import Front, Preprocess, as_front
from utils.tasks.base import Prepared, Shards

if TYPE_CHECKING:
    from concurrent.futures import Future

WORKER_MODES = ("thread", "process")
"""Where preprocessing ahead of the engine may run; see :func:`prepared`."""

# What a preprocess function may raise for one bad sample; anything else is a bug in it and ends the run, as does a
# ConfigError: no sample is to blame for that.
SAMPLE_ERRORS = (TecoInferError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be run, and why."""

    name: str
    reason: str


class Ready(NamedTuple):
    """A preprocessed batch: the samples that made it, their arrays (one per input), and those that did not.

    ``whole`` is the batch as it came, and ``good`` the positions in it of the samples that made it (``None``: all).
    ``contexts`` has what preprocessing keeps of each sample that made it, if it keeps anything.
    """

    batch: Batch
    arrays: list[Array] | Shards | None
    failures: list[Failure]
    nan_inputs: list[str]
    whole: Batch
    good: tuple[int, ...] | None
    contexts: list[Any] | None = None


class Buffers:
    """Batch arrays that a preprocess function with an ``out`` keyword writes into again, instead of allocating."""

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=64)

    def take(self, count: int) -> Array | None:
        """Return room for ``count`` samples; ``None`` where none is free."""
        try:
            array = self._free.popleft()
        except IndexError:
            return None
        return array[:count] if len(array) >= count else None

    def put(self, arrays: list[Array] | Shards | None, outputs: Any) -> None:
        """Take back the input of a call that is over, unless one of its outputs lives in the same memory."""
        if arrays is None or len(arrays) != 1 or isinstance(arrays, Shards):
            return
        results = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        if all(isinstance(r, np.ndarray) and not np.may_share_memory(r, arrays[0]) for r in results):
            base = arrays[0].base
            self._free.append(base if isinstance(base, np.ndarray) else arrays[0])


class _Worker:
    """What the preprocessing threads share: the function, its buffers, and whether they take turns.

    Samples that take next to no time (tiny pictures) are mostly work of the interpreter, which one thread does at a
    time; several threads then only hand its lock to and fro (measured on the digits: two threads were slower than one).
    """

    TINY = 3e-4
    """CPU seconds per sample below which one thread preprocesses at a time."""

    def __init__(self, front: Front, timeline: Timeline, buffers: Buffers | None) -> None:
        self.front, self.timeline = front, timeline
        self.buffers = buffers if front.takes_out else None
        self._turn = threading.Lock()
        self._tiny = False

    def __call__(self, batch: Batch) -> Ready:
        """Preprocess one batch, holding one of the host's slots."""
        if not self._tiny:
            return self._timed(batch)
        with self._turn:
            return self._timed(batch)

    def _timed(self, batch: Batch) -> Ready:
        with host_slots().taken():
            start = time.thread_time()
            ready = prepare(batch, self.front, self.timeline, self.buffers)
            cpu = time.thread_time() - start
        self._tiny = cpu < self.TINY * len(batch.names)
        return ready


def prepared(
    batches: Iterable[Batch],
    preprocess: Preprocess | Front,
    timeline: Timeline,
    workers: int | None = None,
    buffers: Buffers | None = None,
    worker_mode: str = "thread",
    detailed: bool = True,
) -> Generator[Ready, None, None]:
    """Yield the batches preprocessed, in order, at most ``workers + 1`` batches ahead of the consumer.

    A batch that raises is preprocessed again sample by sample, so that only the bad samples are missing. A single batch
    is preprocessed in the calling thread. A function that takes ``out`` writes into ``buffers`` the consumer gave back.

    ``worker_mode`` ``"process"`` lets every thread preprocess in a process of its own, for functions that hold the
    interpreter's lock or may crash; they must be importable there (:mod:`utils.pipeline.ahead.processes`).

    Without ``detailed`` a single batch is not split up into stages: Pillow, given a path, loads one plugin where it
    loads all for bytes.

    Raises:
        ConfigError: an unknown ``worker_mode``, or a function that cannot run in another process.
    """
    if worker_mode not in WORKER_MODES:
        raise ConfigError(f"worker_mode {worker_mode!r} must be one of: {', '.join(WORKER_MODES)}")
    workers, front = usable_cores() if workers is None else workers, as_front(preprocess)
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield prepare(batch, front, timeline, detailed=detailed)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Ready]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="preprocess")
    with pool, _working(worker_mode, front, timeline, buffers) as work:
        try:
            for batch in batches:
                waiting.append(pool.submit(work, batch))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _working(
    mode: str, front: Front, timeline: Timeline, buffers: Buffers | None
) -> AbstractContextManager[Callable[[Batch], Ready]]:
    if mode == "thread":
        return nullcontext(_Worker(front, timeline, buffers))
    from utils.pipeline.ahead.processes import Processes

    return Processes(front, timeline, buffers)


def prepare(
    batch: Batch, front: Front, timeline: Timeline, buffers: Buffers | None = None, *, detailed: bool = True
) -> Ready:
    """Preprocess one batch here and now, into one of ``buffers`` where the front takes ``out``."""
    start, whole = time.perf_counter(), batch
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        with recording(timeline) if detailed else nullcontext():
            part = front.prepare(batch.samples, room)
            arrays: list[Array] | Shards | None = front.collate([part], batch.names)
        contexts, failures = part.contexts, list[Failure]()
    except ConfigError:
        raise
    except SAMPLE_ERRORS:
        batch, arrays, contexts, failures, good = one_by_one(batch, front)
    nan_inputs = nan_names(arrays, batch.names, front.axes)
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return Ready(batch, arrays, failures, nan_inputs, whole, good, contexts)


def one_by_one(
    batch: Batch, front: Front
) -> tuple[Batch, list[Array] | Shards | None, list[Any] | None, list[Failure], tuple[int, ...] | None]:
    """Preprocess sample by sample; return those that made it, their arrays, contexts, failures, and positions."""
    good: list[int] = []
    parts: list[Prepared] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            part = front.prepare([sample])
            front.collate([part], batch.names[i : i + 1])  # one that fits no size of the engine is left out here
            parts.append(part)
            good.append(i)
        except ConfigError:
            raise
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = subset(batch, good)
    all_good = len(good) == len(batch.names)
    arrays = front.collate(parts, kept.names) if parts else None
    return kept, arrays, _contexts(parts), failures, None if all_good else tuple(good)


def _contexts(parts: Sequence[Prepared]) -> list[Any] | None:
    kept = [part.contexts for part in parts if part.contexts is not None]
    return [context for contexts in kept for context in contexts] if kept else None


def subset(batch: Batch, good: Sequence[int]) -> Batch:
    """Return the samples at the positions ``good``."""
    return Batch(*(pick(column, good) for column in batch))


def nan_names(
    arrays: list[Array] | Shards | None, names: list[str], axes: Sequence[int | None] | None = None
) -> list[str]:
    """Return the names of samples whose input holds NaN; ``axes``: where each input has its samples, else first.

    What a task has laid out by SPA has no rows to name: the first and the last sample of the batch do.
    """
    bad = np.zeros(len(names), bool)
    if isinstance(arrays, Shards):
        floats = [array for shard in arrays for array in shard if array.dtype.kind == "f"]
        bad_one = names[0] if len(names) == 1 else f"a sample from {names[0]} to {names[-1]}"
        return [bad_one] if any(np.isnan(array).any() for array in floats) else []
    for i, array in enumerate(arrays or ()):
        axis = axes[i] if axes is not None and i < len(axes) else 0
        if axis is not None and array.dtype.kind == "f" and array.ndim > axis and array.shape[axis] == len(names):
            rows = array if axis == 0 else np.moveaxis(array, axis, 0)
            bad |= np.isnan(rows.reshape(len(names), -1)).any(axis=1)
    return [names[i] for i in np.flatnonzero(bad)]
