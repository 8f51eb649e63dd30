"""The calls of one engine that are under way, from any number of threads, and how its release waits for them."""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tecoinfer_modelzoo.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor


class Calls:
    """Counts calls, each of which is a ``with`` block, and queues them.

    Args:
        name: of the engine's class, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._depth: dict[int, int] = {}
        """Calls under way, one inside the other, by thread."""
        self._since: dict[int, float] = {}
        """When the outermost of them began, in seconds of ``time.perf_counter``."""
        self._queue: ThreadPoolExecutor | None = None
        self._slots: threading.Semaphore | None = None
        self._too_late = ""
        """Why no call may begin any more."""
        self.released = False
        """Whether :meth:`release` was called."""
        self.inherited = False
        """Whether the engine was opened in a process of which this one is a fork."""

    def __enter__(self) -> None:
        """Begin a call.

        Raises:
            EngineError: the engine was released, or was in use when this process was forked.
        """
        mine = threading.get_ident()
        with self._changed:
            if self._too_late:
                raise EngineError(self._too_late)
            depth = self._depth.get(mine, 0)
            if not depth:
                self._since[mine] = time.perf_counter()
            self._depth[mine] = depth + 1

    def __exit__(self, *_: object) -> None:
        mine = threading.get_ident()
        with self._changed:
            self._depth[mine] -= 1
            if not self._depth[mine]:
                del self._depth[mine], self._since[mine]
                self._changed.notify_all()

    @property
    def oldest(self) -> float | None:
        """When the call began that has been under way for longest (``time.perf_counter``); ``None``: there is none."""
        return min(self._since.copy().values(), default=None)

    @contextmanager
    def computing(self, most: int) -> Iterator[None]:
        """Wait until fewer than ``most`` calls of other threads compute, and be one of them in the ``with`` block.

        A call inside another one of the same thread does not wait.
        """
        if self._depth[threading.get_ident()] > 1:
            yield
            return
        with self._changed:
            if self._slots is None:
                self._slots = threading.Semaphore(max(1, most))
            slots = self._slots
        with slots:
            yield

    def queue(self, threads: int) -> ThreadPoolExecutor:
        """Return the threads that run queued calls, started on first use.

        Raises:
            EngineError: no call may begin any more; so does submitting to them afterwards.
        """
        from concurrent.futures import ThreadPoolExecutor

        calls = self

        class Queue(ThreadPoolExecutor):
            def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
                try:
                    return super().submit(call, *args, **named)
                except RuntimeError as error:  # it is shut down
                    raise EngineError(calls._too_late or f"{calls._name}: the interpreter ends") from error

        with self._changed:
            if self._too_late:
                raise EngineError(self._too_late)
            if self._queue is None:
                self._queue = Queue(threads, thread_name_prefix="engine")
            return self._queue

    def release(self) -> bool:
        """Begin no call any more, cancel queued ones, and wait for those of other threads.

        Returns:
            Whether this is the first time, and the engine's resources may be freed: those that were opened before a
            fork are the parent's.
        """
        mine = threading.get_ident()
        with self._changed:
            if self.released:
                return False
            self.released = True
            self._too_late = f"{self._name} was used after release(); open a new engine"
            calling = mine in self._depth  # a call that releases its own engine: it does not wait for itself
        if self._queue is not None:
            self._queue.shutdown(wait=not calling, cancel_futures=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._depth.keys() - {mine})
        return not self.inherited

    def forked(self) -> None:
        """Forget, in the child of a fork, the threads that it does not have.

        Calls of theirs may have left the backend in any state, so that no call begins any more where there were any.
        """
        mine = threading.get_ident()
        self._changed, self._queue, self._slots, self.inherited = threading.Condition(), None, None, True
        if self._depth.keys() - {mine} and not self.released:
            self._too_late = (
                f"{self._name} was computing in another thread when this process was forked; open it again here"
            )
        self._depth = {mine: self._depth[mine]} if mine in self._depth else {}
        self._since = {mine: self._since[mine]} if mine in self._since else {}


_opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Engines of this process, by id: a class may have no hash."""


def follow_forks(engine: Any) -> None:
    """Make an engine usable in the children that this process forks, where no other thread is computing then."""
    _opened[id(engine)] = engine


def _in_child() -> None:
    engines = list(_opened.values())
    for engine in engines:
        engine._running.forked()
        engine.timeline.forked()
    if engines:
        import ctypes

        # Destructors of native runtimes wait for threads that the child does not have, at its exit at the latest.
        for engine in engines:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
