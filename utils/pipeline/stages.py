"""The front of both loops: preprocess batches ahead of the engine, in order, and lose no sample to a bad one."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.base import Array, DataError, TecoInferError
from engine.cores import host_slots, usable_cores
from engine.timeline import Timeline, recording
from utils.datasets.samples import Batch

if TYPE_CHECKING:
    from concurrent.futures import Future

Preprocess = Callable[[Any], "Array | Sequence[Array]"]

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
        self.buffers = buffers if buffers is not None and _takes_out(preprocess) else None
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
            ready = _prepare(batch, self.preprocess, self.timeline, self.buffers)
            cpu = time.thread_time() - start
        self._tiny = cpu < self.TINY * len(batch.names)
        return ready


def prepared(
    batches: Iterable[Batch],
    preprocess: Preprocess,
    timeline: Timeline,
    workers: int | None = None,
    buffers: Buffers | None = None,
) -> Generator[Ready, None, None]:
    """Yield the batches preprocessed, in order, at most ``workers + 1`` batches ahead of the consumer.

    A batch that raises is preprocessed again sample by sample, so that only the bad samples are missing. A single batch
    is preprocessed in the calling thread. A function that takes ``out`` writes into ``buffers`` the consumer gave back.
    """
    workers = usable_cores() if workers is None else workers
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield _prepare(batch, preprocess, timeline)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Ready]] = deque()
    work = _Worker(preprocess, timeline, buffers)
    with ThreadPoolExecutor(workers, thread_name_prefix="preprocess") as pool:
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


def _takes_out(preprocess: Preprocess) -> bool:
    try:
        return "out" in inspect.signature(preprocess).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _prepare(batch: Batch, preprocess: Preprocess, timeline: Timeline, buffers: Buffers | None = None) -> Ready:
    start, whole = time.perf_counter(), batch
    arrays: list[Array] | None
    failures: list[Failure]
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        with recording(timeline):
            done = preprocess(batch.samples) if room is None else preprocess(batch.samples, out=room)  # type: ignore[call-arg]
        arrays, failures = as_list(done), []
    except SAMPLE_ERRORS:
        batch, arrays, failures, good = _one_by_one(batch, preprocess)
    nan_inputs = [batch.names[i] for i in _nan_rows(arrays, len(batch.names))] if arrays else []
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return Ready(batch, arrays, failures, nan_inputs, whole, good)


def as_list(arrays: Array | Sequence[Array]) -> list[Array]:
    """Return what a preprocess function gave as a list of arrays."""
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays)


def _one_by_one(
    batch: Batch, preprocess: Preprocess
) -> tuple[Batch, list[Array] | None, list[Failure], tuple[int, ...] | None]:
    good: list[int] = []
    parts: list[list[Array]] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            parts.append(as_list(preprocess([sample])))
            good.append(i)
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = Batch(
        [batch.samples[i] for i in good],  # type: ignore[arg-type]
        None if batch.labels is None else batch.labels[good],
        [batch.names[i] for i in good],
    )
    all_good = len(good) == len(batch.names)
    return kept, _joined(parts, kept.names) if parts else None, failures, None if all_good else tuple(good)


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


def _nan_rows(arrays: list[Array], count: int) -> list[int]:
    bad = np.zeros(count, bool)
    for array in arrays:
        if array.dtype.kind == "f" and array.ndim and len(array) == count:
            bad |= np.isnan(array.reshape(count, -1)).any(axis=1)
    return [int(i) for i in np.flatnonzero(bad)]
