"""Batches prepared ahead of the engine, in order: in threads, each with a process of its own where asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sized
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Timeline, host_slots, usable_cores
from utils.datasets.base import Batch
from utils.pipeline.run.function_task import as_preprocessor
from utils.pipeline.run.pipeline import Buffers, PreparedBatch, Preprocessor, prepare

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

WORKER_MODES = ("thread", "process")
"""Where preprocessing ahead of the engine may run; see :func:`prepared`."""


class _Worker:
    """What the preprocessing threads share: the function, its buffers, and whether they take turns.

    Samples that take next to no time (tiny pictures) are mostly work of the interpreter, which one thread does at a
    time; several threads then only hand its lock to and fro (measured on the digits: two threads were slower than one).
    """

    TINY = 3e-4
    """CPU seconds per sample below which one thread preprocesses at a time."""

    def __init__(self, preprocessor: Preprocessor, timeline: Timeline, buffers: Buffers | None) -> None:
        self.preprocessor, self.timeline = preprocessor, timeline
        self.buffers = buffers if preprocessor.takes_out else None
        self._turn = threading.Lock()
        self._tiny = False

    def __call__(self, batch: Batch) -> PreparedBatch:
        """Preprocess one batch, holding one of the host's slots."""
        if not self._tiny:
            return self._timed(batch)
        with self._turn:
            return self._timed(batch)

    def _timed(self, batch: Batch) -> PreparedBatch:
        with host_slots().taken():
            start = time.thread_time()
            ready = prepare(batch, self.preprocessor, self.timeline, self.buffers)
            cpu = time.thread_time() - start
        self._tiny = cpu < self.TINY * len(batch.names)
        return ready


def prepared(
    batches: Iterable[Batch],
    preprocess: Callable[..., Any] | Preprocessor,
    timeline: Timeline,
    workers: int | None = None,
    buffers: Buffers | None = None,
    worker_mode: str = "thread",
    detailed: bool = True,
) -> Generator[PreparedBatch, None, None]:
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
    workers, preprocessor = usable_cores() if workers is None else workers, as_preprocessor(preprocess)
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield prepare(batch, preprocessor, timeline, detailed=detailed)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(workers, thread_name_prefix="preprocess")
    with pool, _working(worker_mode, preprocessor, timeline, buffers) as work:
        yield from _in_order(batches, pool, work, workers + 1)


def _in_order(
    batches: Iterable[Batch], pool: Executor, work: Callable[[Batch], PreparedBatch], ahead: int
) -> Generator[PreparedBatch, None, None]:
    """Yield what a pool makes of the batches, in their order, and at most ``ahead`` of them early."""
    waiting: deque[Future[PreparedBatch]] = deque()
    try:
        for batch in batches:
            waiting.append(pool.submit(work, batch))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _working(
    mode: str, preprocessor: Preprocessor, timeline: Timeline, buffers: Buffers | None
) -> AbstractContextManager[Callable[[Batch], PreparedBatch]]:
    if mode == "thread":
        return nullcontext(_Worker(preprocessor, timeline, buffers))
    from utils.pipeline.ahead.processes import Processes

    return Processes(preprocessor, timeline, buffers)
