"""The system under test: a queue of samples, and workers that make batches of them and call the engine."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine import Array

Serve = Callable[[Sequence[int]], list[Array]]
"""Indices of samples -> one array per output of the model, with a row per sample."""

Respond = Callable[[Sequence[int], "list[Array] | None"], float]
"""Takes identifiers and outputs (``None`` after a failure); returns when it answered, just before doing so."""


class Sample(NamedTuple):
    """A sample in the queue; ``place``: its index, ``query``: number of the call of :meth:`SystemUnderTest.issue`."""

    identifier: int
    place: int
    query: int
    received: float


class Served(NamedTuple):
    """A batch; times in seconds of ``perf_counter``.

    Attributes:
        started, computed: begin and end of the call of the engine.
        completed, answered: just before LoadGen was called with the answer, and when that call returned.
    """

    samples: tuple[Sample, ...]
    started: float
    computed: float
    completed: float
    answered: float


class SystemUnderTest:
    """Answers queries in order of arrival.

    A worker that is free takes the samples that wait, at most ``max_batch``. With a ``delay`` it waits until the oldest
    one has waited that long, or the batch is full, or LoadGen has issued everything.

    Args:
        serve: computes a batch. respond: passes answers to LoadGen.
        max_batch: most samples of a batch. delay: seconds. workers: batches computed at the same time.

    ``failure`` is the error of the first failed batch. From then on, and after :meth:`abort`, queries are answered at
    once without computing, because LoadGen only ends when all are answered.
    """

    def __init__(self, serve: Serve, respond: Respond, *, max_batch: int, delay: float = 0.0, workers: int = 1) -> None:
        self._serve, self._respond = serve, respond
        self._max_batch, self._delay = max_batch, delay
        self._queue: deque[Sample] = deque()
        self._changed = threading.Condition()
        self._queries = 0
        self._flushed = self._closed = False
        self.served: list[Served] = []
        self.failure: BaseException | None = None
        self._failed = threading.Event()
        self._threads = [threading.Thread(target=self._work, name=f"load-{i}", daemon=True) for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def issue(self, samples: Sequence[tuple[int, int]], received: float) -> None:
        """Take a query: identifier and index of each of its samples, and when it came (``perf_counter``)."""
        with self._changed:
            query, self._queries = self._queries, self._queries + 1
            self._flushed = False
            self._queue.extend(Sample(*sample, query, received) for sample in samples)
            self._changed.notify_all()

    def flush(self) -> None:
        """Compute what waits without a delay: no more queries follow for now."""
        with self._changed:
            self._flushed = True
            self._changed.notify_all()

    def abort(self, failure: BaseException | None = None) -> None:
        """Answer all queries at once from now on; ``failure``: why."""
        self.failure = self.failure or failure
        self._failed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def aborted(self) -> threading.Event:
        """Set after :meth:`abort`, or when a batch has failed."""
        return self._failed

    def close(self) -> None:
        """End the workers; samples that still wait are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            indices = [sample.place for sample in batch]
            started = time.perf_counter()
            outputs = self._computed(indices)
            computed = time.perf_counter()
            completed = self._respond([sample.identifier for sample in batch], outputs)
            self.served.append(Served(batch, started, computed, completed, time.perf_counter()))

    def _computed(self, indices: Sequence[int]) -> list[Array] | None:
        if self._failed.is_set():
            return None
        try:
            return self._serve(indices)
        except BaseException as error:  # noqa: BLE001 -- raised by the main thread; LoadGen needs an answer meanwhile
            self.abort(error)
            return None

    def _next(self) -> tuple[Sample, ...] | None:
        """Return the next batch; ``None`` at the end."""
        with self._changed:
            while not self._closed:
                wait = self._wait()
                if wait is not None and wait <= 0:
                    count = min(len(self._queue), self._max_batch)
                    return tuple(self._queue.popleft() for _ in range(count))
                self._changed.wait(wait)
        return None

    def _wait(self) -> float | None:
        """Return the seconds until a batch may start; ``None``: not before the queue changes."""
        if not self._queue:
            return None
        if not self._delay or self._flushed or len(self._queue) >= self._max_batch or self._failed.is_set():
            return 0.0
        return self._queue[0].received + self._delay - time.perf_counter()
