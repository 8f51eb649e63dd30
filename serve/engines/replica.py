"""An open model in a replica of Ray Serve: the same calls as in an engine process, made from Python."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from engine import Array, EngineError
from serve.engines.calls import Calls, failure_of, limit_pixels
from serve.engines.opened import opened
from serve.engines.wire import Message
from serve.source import ModelSource


class _Collected:
    """Takes the messages of one call at a time."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[tuple[dict[str, Any], list[Array]]] = queue.SimpleQueue()
        self.ended = False

    def send(self, header: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
        self.messages.put((header, list(arrays)))

    def is_cancelled(self, call: int) -> bool:
        return self.ended

    def forget(self, call: int) -> None:
        self.ended = False


def tried(source: Mapping[str, Any], pixels: int, samples: int, seconds: float) -> dict[str, Any] | str:
    """Open a model and close it; return its description, or why it cannot be opened."""
    try:
        limit_pixels(pixels)
        with opened(ModelSource.from_json(source)) as model:
            return model.description()
    except Exception as error:  # noqa: BLE001 -- the server reports it
        return failure_of(error)


class Replica:
    """An open model. Raises TecoInferError if it cannot be opened.

    Args:
        source: of the model, in JSON types. pixels, samples: limits of a body.
        seconds: that a call may take, after which the replica counts as unhealthy, and is replaced.
    """

    def __init__(self, source: Mapping[str, Any], pixels: int, samples: int, seconds: float) -> None:
        limit_pixels(pixels)
        self._stack = ExitStack()
        self._model = self._stack.enter_context(opened(ModelSource.from_json(source)))
        self._taken = _Collected()
        self._calls = Calls(self._model, self._taken, samples)
        self._lock = threading.Lock()  # engines compute one call at a time
        self._seconds, self._since = seconds, math.inf

    def check_health(self) -> None:
        """Raise EngineError if a call takes too long."""
        if time.monotonic() - self._since > self._seconds:
            raise EngineError(f"a call has not returned within {self._seconds:g} s")

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self._lock:
            self._since = time.monotonic()
            try:
                yield
            finally:
                self._since = math.inf

    def call(self, header: dict[str, Any], arrays: list[Array]) -> tuple[dict[str, Any], list[Array]]:
        """Compute a call; return its header, with the process, and its arrays."""
        with self._running():
            self._calls.run(Message(header, arrays))
            found, results = self._taken.messages.get()
        return {**found, "pid": os.getpid()}, results

    def stream(self, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Compute a call that gives its result in parts; yield their headers, the last one of kind ``done``."""
        with self._running():
            thread = threading.Thread(target=self._calls.run, args=(Message(header, []),), name="call")
            thread.start()
            try:
                kind = ""
                while kind != "done":
                    found, _ = self._taken.messages.get()
                    kind = found["kind"]
                    yield found
            finally:  # also where the client is gone
                self._taken.ended = kind != "done"
                thread.join()
                self._taken.ended = False
                while not self._taken.messages.empty():
                    self._taken.messages.get()
