"""Prepare batches ahead of the engine, in order, in threads or in one process per thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Timeline, host_slots, usable_cores
from utils.datasets.base import Batch
from utils.pipeline.run.function_task import as_preprocessor
from utils.pipeline.run.pipeline import Buffers, PreparedBatch, Preprocessor, prepare

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

WORKER_MODES = ("thread", "process")
"""Modes of preprocessing workers; see :func:`prepared`."""


class _Worker:
    """The function of all preprocessing threads, with its buffers.

    Preprocessing of tiny samples mostly holds the interpreter lock; then one thread preprocesses them, as several
    threads are slower than one (measured on the digits with two threads).
    """

    TINY = 3e-4
    """CPU seconds per sample below which one thread preprocesses."""

    def __init__(self, preprocessor: Preprocessor, timeline: Timeline, buffers: Buffers | None) -> None:
        self.preprocessor, self.timeline = preprocessor, timeline
        self.buffers = buffers if preprocessor.takes_out else None
        self.tiny = self.known = False

    def __call__(self, batch: Batch) -> PreparedBatch:
        """Preprocess one batch, holding one of the host's slots."""
        with host_slots().taken():
            start = time.thread_time()
            ready = prepare(batch, self.preprocessor, self.timeline, self.buffers)
            cpu = time.thread_time() - start
        self.tiny, self.known = cpu < self.TINY * len(batch.names), True
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
    """Yield preprocessed batches, in order, at most ``workers + 1`` batches ahead of the consumer.

    Args:
        batches: of the data set.
        preprocess: samples to arrays. If it raises, the batch is preprocessed again sample by sample, so that only bad
            samples are missing.
        timeline: takes the times of the stages.
        workers: number of threads; ``None``: one per core. 0, and a single batch: in the calling thread.
        buffers: arrays that the consumer gave back, for a function that takes ``out``.
        worker_mode: ``"process"``: each thread preprocesses in a child process, for functions that hold the interpreter
            lock or may crash; they must be importable there (:mod:`utils.pipeline.ahead.processes`).
        detailed: ``False``: a single batch is not measured by stage; Pillow then opens files by path, and loads one
            plugin in place of all.

    Raises ConfigError: an unknown ``worker_mode``, or a function that cannot run in another process.
    """
    if worker_mode not in WORKER_MODES:
        raise ConfigError(f"worker_mode {worker_mode!r} must be one of: {', '.join(WORKER_MODES)}")
    workers, preprocessor = usable_cores() if workers is None else workers, as_preprocessor(preprocess)
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield prepare(batch, preprocessor, timeline, detailed=detailed)
        return
    from concurrent.futures import ThreadPoolExecutor, wait

    one, pool = (ThreadPoolExecutor(count, thread_name_prefix="preprocess") for count in (1, workers))
    with one, pool:  # threads start when there is something to do
        if worker_mode == "process":
            from utils.pipeline.ahead.processes import Processes

            with Processes(preprocessor, timeline, buffers) as processes:
                yield from _in_order(batches, lambda *_: pool, processes, workers + 1)
            return
        work = _Worker(preprocessor, timeline, buffers)

        def chosen(batch: Batch, waiting: Sequence[Future[PreparedBatch]]) -> Executor:
            if not work.known and len(waiting) == 1:
                wait(waiting, work.TINY * len(batch.names))  # the first batch shows whether samples are tiny
            return one if work.tiny or not waiting else pool

        yield from _in_order(batches, chosen, work, workers + 1)


def _in_order(
    batches: Iterable[Batch],
    chosen: Callable[[Batch, Sequence[Future[PreparedBatch]]], Executor],
    work: Callable[[Batch], PreparedBatch],
    ahead: int,
) -> Generator[PreparedBatch, None, None]:
    """Yield the results for the batches, in order, at most ``ahead`` batches early; ``chosen``: the pool of a batch."""
    waiting: deque[Future[PreparedBatch]] = deque()
    try:
        for batch in batches:
            waiting.append(chosen(batch, waiting).submit(work, batch))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
