"""Engines that keep what they gave back, for tasks whose ``infer`` calls them as it likes: NaN may get lost on the way.

A search for the largest of some scores, say, makes a place of them, and NaN is not to be seen in that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine import Array, Engine
from utils.pipeline.nan import Flaws

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine import TensorSpec


class _Calls(threading.local):
    """What the calls of this thread's batch gave back, with the outputs' tensors; ``None``: it has no batch."""

    flaws: Flaws | None = None
    queued: list[tuple[Future[Any], Sequence[TensorSpec]]] | None = None


class Watch:
    """Watches the engines of a task.

    Attributes:
        engines: to be called in place of the task's own.
        at_set_up: the calls of the task's ``setup`` gave back NaN.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._calls = _Calls()
        self.at_set_up = False
        self.engines = {name: _Watched(engine, self._note, self._queue) for name, engine in engines.items()}

    @contextmanager
    def batch(self, count: int) -> Iterator[Flaws]:
        """Yield the flaws of this thread's calls for a batch of so many samples; complete when it is left."""
        calls, flaws = self._calls, Flaws.none(count)
        calls.flaws, calls.queued = flaws, []
        try:
            yield flaws
            for future, outputs in calls.queued:
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._note(future.result(), outputs)
            flaws.nan |= self.at_set_up
        finally:
            calls.flaws = calls.queued = None

    def _note(self, results: Any, outputs: Sequence[TensorSpec]) -> None:
        axes = [tensor.batch_axis for tensor in outputs]
        if self._calls.flaws is not None:
            self._calls.flaws.add(results, axes)
            return
        found = Flaws.none(1)
        found.add(results, axes)
        self.at_set_up = self.at_set_up or bool(found.nan[0])

    def _queue(self, future: Future[Any], outputs: Sequence[TensorSpec]) -> None:
        if self._calls.queued is not None:
            self._calls.queued.append((future, outputs))


class _Watched:
    """An engine whose results are noted."""

    def __init__(self, engine: Engine, note: Callable[..., None], queue: Callable[..., None]) -> None:
        self._engine, self._note, self._queue = engine, note, queue

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model."""
        results = self._engine(inputs)
        self._note(results, self._engine.outputs)
        return results

    def call_shards(self, shards: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run what each SPA gets."""
        results = self._engine.call_shards(shards)
        self._note(results, self._engine.outputs)
        return results

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call."""
        future = self._engine.run_async(inputs)
        self._queue(future, self._engine.outputs)
        return future

    def __getattr__(self, name: str) -> Any:
        """Answer everything else as the engine does."""
        return getattr(self._engine, name)
