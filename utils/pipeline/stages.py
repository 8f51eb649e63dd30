"""The front of both loops: preprocess batches ahead of the engine, in order, and lose no sample to a bad one."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.base import Array, ConfigError, DataError, TecoInferError
from engine.cores import host_slots, usable_cores
from engine.timeline import Timeline, recording
from utils.datasets.samples import Batch

if TYPE_CHECKING:
    from concurrent.futures import Future

Preprocess = Callable[[Any], "Array | Sequence[Array]"]

WORKER_MODES = ("thread", "process")
"""Where preprocessing ahead of the engine may run; see :func:`prepared`."""

# What a preprocess function may raise for one bad sample; anything else is a bug in it and ends the run.
SAMPLE_ERRORS = (TecoInferError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be run, and why."""

    name: str
    reason: str


class Ready(NamedTuple):
    """A preprocessed batch: the samples that made it, their arrays (one per input), and those that did not.

    ``whole`` is the batch as it came, and ``good`` the positions in it of the samples that made it (``None``: all).
    """

    batch: Batch
    arrays: list[Array] | None
    failures: list[Failure]
    nan_inputs: list[str]
    whole: Batch
    good: tuple[int, ...] | None


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

    def put(self, arrays: Sequence[Array] | None, outputs: Any) -> None:
        """Take back the input of a call that is over, unless one of its outputs lives in the same memory."""
        if arrays is None or len(arrays) != 1:
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

    def __init__(self, preprocess: Preprocess, timeline: Timeline, buffers: Buffers | None) -> None:
        self.preprocess, self.timeline = preprocess, timeline
        self.buffers = buffers if buffers is not None and takes_out(preprocess) else None
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
            ready = prepare(batch, self.preprocess, self.timeline, self.buffers)
            cpu = time.thread_time() - start
        self._tiny = cpu < self.TINY * len(batch.names)
        return ready


def prepared(
    batches: Iterable[Batch],
    preprocess: Preprocess,
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
    interpreter's lock or may crash; they must be importable there (:mod:`utils.pipeline.processes`).

    Without ``detailed`` a single batch is not split up into stages: Pillow, given a path, loads one plugin where it
    loads all for bytes.

    Raises:
        ConfigError: an unknown ``worker_mode``, or a function that cannot run in another process.
    """
    if worker_mode not in WORKER_MODES:
        raise ConfigError(f"worker_mode {worker_mode!r} must be one of: {', '.join(WORKER_MODES)}")
    workers = usable_cores() if workers is None else workers
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield prepare(batch, preprocess, timeline, detailed=detailed)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Ready]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="preprocess")
    with pool, _working(worker_mode, preprocess, timeline, buffers) as work:
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
    mode: str, preprocess: Preprocess, timeline: Timeline, buffers: Buffers | None
) -> AbstractContextManager[Callable[[Batch], Ready]]:
    if mode == "thread":
        return nullcontext(_Worker(preprocess, timeline, buffers))
    from utils.pipeline.processes import Processes

    return Processes(preprocess, timeline, buffers)


def takes_out(preprocess: Preprocess) -> bool:
    """Say whether a preprocess function can write into an array that it is given."""
    try:
        return "out" in inspect.signature(preprocess).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def prepare(
    batch: Batch, preprocess: Preprocess, timeline: Timeline, buffers: Buffers | None = None, *, detailed: bool = True
) -> Ready:
    """Preprocess one batch here and now, into one of ``buffers`` where the function takes ``out``."""
    start, whole = time.perf_counter(), batch
    arrays: list[Array] | None
    failures: list[Failure]
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        with recording(timeline) if detailed else nullcontext():
            done = preprocess(batch.samples) if room is None else preprocess(batch.samples, out=room)  # type: ignore[call-arg]
        arrays, failures = as_list(done), []
    except SAMPLE_ERRORS:
        batch, arrays, failures, good = one_by_one(batch, preprocess)
    nan_inputs = nan_names(arrays, batch.names)
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return Ready(batch, arrays, failures, nan_inputs, whole, good)


def as_list(arrays: Array | Sequence[Array]) -> list[Array]:
    """Return what a preprocess function gave as a list of arrays."""
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays)


def one_by_one(
    batch: Batch, preprocess: Preprocess
) -> tuple[Batch, list[Array] | None, list[Failure], tuple[int, ...] | None]:
    """Preprocess sample by sample; return those that made it, their arrays, the failures, and the positions."""
    good: list[int] = []
    parts: list[list[Array]] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            parts.append(as_list(preprocess([sample])))
            good.append(i)
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = subset(batch, good)
    all_good = len(good) == len(batch.names)
    return kept, _joined(parts, kept.names) if parts else None, failures, None if all_good else tuple(good)


def subset(batch: Batch, good: Sequence[int]) -> Batch:
    """Return the samples at the positions ``good``."""
    return Batch(
        [batch.samples[i] for i in good],  # type: ignore[arg-type]
        None if batch.labels is None else batch.labels[list(good)],
        [batch.names[i] for i in good],
    )


def _joined(parts: list[list[Array]], names: list[str]) -> list[Array]:
    """Put the samples of a batch together again.

    Raises:
        DataError: they do not go together: every one is right by itself, so no single sample is to blame.
    """
    shapes = [[array.shape[1:] for array in part] for part in parts]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise DataError(
            f"preprocess gives {names[0]} the shapes {shapes[0]} and {names[other]} {shapes[other]}, which cannot "
            "share a batch; resize them to one shape, or use a batch size of 1"
        )
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def nan_names(arrays: list[Array] | None, names: list[str]) -> list[str]:
    """Return the names of samples whose input holds NaN."""
    bad = np.zeros(len(names), bool)
    for array in arrays or ():
        if array.dtype.kind == "f" and array.ndim and len(array) == len(names):
            bad |= np.isnan(array.reshape(len(names), -1)).any(axis=1)
    return [names[i] for i in np.flatnonzero(bad)]
