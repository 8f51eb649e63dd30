"""The calls of one engine that are under way, from any number of threads, and how its release waits for them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor


class Calls:
    """Counts calls, each of which is a ``with`` block, and queues them.

    Args:
        name: of the engine's class, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._queue: ThreadPoolExecutor | None = None
        self.released = False
        """Whether :meth:`release` was called."""

    def __enter__(self) -> None:
        """Begin a call.

        Raises:
            EngineError: the engine was released.
        """
        with self._changed:
            if self.released:
                raise self._too_late()
            self._inside[threading.get_ident()] += 1

    def __exit__(self, *_: object) -> None:
        mine = threading.get_ident()
        with self._changed:
            self._inside[mine] -= 1
            if not self._inside[mine]:
                del self._inside[mine]
                self._changed.notify_all()

    def _too_late(self) -> EngineError:
        return EngineError(f"{self._name} was used after release(); open a new engine")

    def queue(self, threads: int) -> ThreadPoolExecutor:
        """Return the threads that run queued calls, started on first use.

        Raises:
            EngineError: the engine was released; so does submitting to them afterwards.
        """
        from concurrent.futures import ThreadPoolExecutor

        too_late = self._too_late

        class Queue(ThreadPoolExecutor):
            def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
                try:
                    return super().submit(call, *args, **named)
                except RuntimeError as error:  # it is shut down
                    raise too_late() from error

        with self._changed:
            if self.released:
                raise self._too_late()
            if self._queue is None:
                self._queue = Queue(threads, thread_name_prefix="engine")
            return self._queue

    def release(self) -> bool:
        """Begin no call any more, cancel queued ones, and wait for those of other threads.

        Returns:
            Whether this is the first time, and the engine's resources may be freed.
        """
        mine = threading.get_ident()
        with self._changed:
            if self.released:
                return False
            self.released = True
            calling = mine in self._inside  # a call that releases its own engine: it does not wait for itself
        if self._queue is not None:
            self._queue.shutdown(wait=not calling, cancel_futures=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._inside.keys() - {mine})
        return True
