"""Preprocess in child processes, for code that holds the interpreter lock or may crash.

Each preprocessing thread has one child: a new interpreter, like multiprocessing's "spawn". The thread sends it the
samples of a batch and receives the result of :func:`.prepare`; arrays come through an anonymous memory file.

Children are started by ``subprocess`` and not by ``multiprocessing.Process``, which starts a resource tracker for every
program, and in which two waiting threads can take each other's exit status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, Timeline, host_slots
from utils.datasets.base import Batch
from utils.pipeline.ahead.process_child import Alone, Done, Memory, Raised, in_child
from utils.pipeline.launch.exit_status import Stopped, how_ended
from utils.pipeline.run.pipeline import Buffers, Failure, PreparedBatch, Preprocessor, one_by_one, subset
from utils.tasks.prepared import Prepared, Shards

_PATIENCE = 0.3
"""Seconds the children have to end on SIGTERM before they are killed."""

_COMMAND = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from utils.pipeline.ahead import process_child; process_child.serve(*sys.argv[1:3])"
)

_INSTEAD = "or use --worker_mode thread"


class _DiedError(Exception):
    """A child ended without an answer; the message is its exit status."""


class _OriginError(Exception):
    """The traceback in the child, as cause of the error."""


class _Child:
    """A child process with its connection and memory; hold ``lock`` to use it.

    ``preprocess`` is the pickled function; ConfigError is raised if the process cannot be started.
    """

    def __init__(self, preprocess: bytes) -> None:
        self.lock = threading.Lock()
        self._preprocess = preprocess
        self._connection, theirs = Pipe()
        self._fd = -1
        try:
            self._fd = os.memfd_create("preprocess")
            self._process = _started([theirs.fileno(), self._fd])
        except OSError as error:
            self.close()
            fix = f"use fewer --workers, {_INSTEAD}"
            raise ConfigError(f"cannot start a preprocessing process: {error.strerror}; {fix}") from error
        finally:
            theirs.close()
        self.memory = Memory(self._fd)
        _live.add(self)

    def greet(self) -> str | None:
        """Send the function; return the reason why it cannot be used, or ``None``; raise _DiedError if it ended."""
        # The main module is imported only if needed: that takes time, and runs an unguarded script.
        main = _main_module() if b"__main__" in self._preprocess else {}
        reason: str | None = self._talk(reduction.ForkingPickler.dumps(main), self._preprocess)
        return reason

    def ask(self, what: Batch | Alone) -> Any:
        """Let the child preprocess a batch or one sample; return its answer; raise _DiedError if it ended."""
        return self._talk(reduction.ForkingPickler.dumps(what))

    def _talk(self, *messages: Any) -> Any:
        try:
            for message in messages:
                self._connection.send_bytes(message)
            stopped = Stopped(lambda: (self._process.pid,))
            while not self._connection.poll(1.0):
                if stopped() is not None:
                    self._process.kill()  # which closes the connection
            return self._connection.recv()
        except (EOFError, OSError):
            raise _DiedError(self.wait(_PATIENCE)) from None

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process so far; 0 after :meth:`wait`."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # proc_pid_stat(5): utime and stime

    def stop(self) -> None:
        """Ask the process to end."""
        self._process.terminate()

    def wait(self, seconds: float) -> str:
        """Wait for the process to end, kill it after ``seconds``, and return its exit status as text."""
        try:
            code = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        _live.discard(self)
        return f"signal {how_ended(code).removeprefix('signal ')}" if code < 0 else how_ended(code)

    def close(self) -> None:
        """Close connection and memory of an ended process; may be called twice."""
        self._connection.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_live: set[_Child] = set()
"""Children that have not been waited for."""


def live_cpu_seconds() -> float:
    """Return the CPU seconds of children that have not been waited for, which ``os.times`` does not include."""
    return sum(child.cpu_seconds() for child in list(_live))


class _Own(threading.local):
    """The child of a thread."""

    child: _Child | None = None


class Processes:
    """Preprocesses batches in child processes, one per calling thread; a context manager that ends them.

    Arguments as of :func:`utils.pipeline.ahead.prepared`. Raises ConfigError if the function cannot be pickled, or this
    is a preprocessing child itself.
    """

    def __init__(self, preprocessor: Preprocessor, timeline: Timeline, buffers: Buffers | None) -> None:
        self._preprocessor, name = preprocessor, preprocessor.name
        if in_child.is_set():
            raise ConfigError('the script runs when it is imported; put the run under `if __name__ == "__main__":`')
        if not hasattr(os, "memfd_create"):
            raise ConfigError(f"preprocessing in processes needs Linux; use --worker_mode thread for {name}")
        try:
            self._preprocess = bytes(reduction.ForkingPickler.dumps(preprocessor))
        except Exception as error:
            raise _unusable(name, error) from error
        self._name, self._timeline, self._buffers = name, timeline, buffers
        self._own = _Own()
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self._ended = False

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """End the children, also in the middle of their work."""
        with self._lock:
            self._ended = True
            children = list(self._children)
        for child in children:
            child.stop()
        deadline = time.perf_counter() + _PATIENCE
        for child in children:
            child.wait(deadline - time.perf_counter())
        for child in children:
            with child.lock:  # its thread releases the lock when the child has ended
                child.close()

    def __call__(self, batch: Batch) -> PreparedBatch:
        """Preprocess one batch, holding one of the host's slots.

        If the child dies, every sample is preprocessed separately, and samples of which it dies again are left out.
        """
        with host_slots().taken():
            try:
                done, arrays = self._ask(batch, lambda done, child: (done, _arrays(done, child.memory, self._buffers)))
            except _DiedError:
                return self._again(batch)
            for span in done.spans:
                self._timeline.add(*span)
        kept = batch if done.good is None else subset(batch, done.good)
        return PreparedBatch(kept, arrays, done.failures, done.nan_inputs, batch, done.good, done.contexts)

    def _again(self, batch: Batch) -> PreparedBatch:
        start = time.perf_counter()
        kept, arrays, contexts, failures, good = one_by_one(batch, _InChild(self, self._preprocessor))
        self._timeline.add("preprocess", start, time.perf_counter(), len(kept.names))
        return PreparedBatch(
            kept, arrays, failures, self._preprocessor.nan_names(arrays, kept.names), batch, good, contexts
        )

    def alone(self, sample: Any) -> Prepared:
        """Prepare one sample; raise DataError if it cannot be prepared, or the child died."""
        try:
            answer = self._ask(Alone(sample), lambda answer, _: answer)
        except _DiedError as error:
            raise DataError(f"ended the preprocessing process ({error}); sample left out") from None
        if isinstance(answer, Failure):
            raise DataError(answer.reason)
        prepared: Prepared = answer
        return prepared

    def _ask(self, what: Batch | Alone, take: Callable[[Any, _Child], Any]) -> Any:
        """Send a request to this thread's child, and copy its answer before the next request overwrites the memory."""
        child = self._child()
        with child.lock:
            try:
                answer = child.ask(what)
            except _DiedError:
                self._own.child = None
                self._children.discard(child)
                child.close()
                raise
            if isinstance(answer, Raised):
                raise answer.error from _OriginError(f"in the preprocessing process:\n{answer.origin}")
            return take(answer, child)

    def _child(self) -> _Child:
        """Return this thread's child; start it if there is none."""
        if self._own.child is not None:
            return self._own.child
        with self._lock:
            self._check_wanted()
            child = _Child(self._preprocess)
            self._children.add(child)
        with child.lock:
            try:
                reason = child.greet()
            except _DiedError as error:
                self._check_wanted()
                raise ConfigError(
                    f"the preprocessing process for {self._name} ended as it started ({error}); {_INSTEAD[3:]}"
                ) from None
        if reason is not None:
            raise _unusable(self._name, reason)
        self._own.child = child
        return child

    def _check_wanted(self) -> None:
        """Raise CancelledError, which is ignored, if the run has ended."""
        from concurrent.futures import CancelledError

        if self._ended:
            raise CancelledError


class _InChild(Preprocessor):
    """Prepares in a child and collates in this process."""

    def __init__(self, processes: Processes, preprocessor: Preprocessor) -> None:
        super().__init__(preprocessor.task)
        self._processes = processes

    def prepare(self, samples: Sequence[Any], out: Array | None = None, timeline: Timeline | None = None) -> Prepared:
        """Prepare one sample."""
        (sample,) = samples
        return self._processes.alone(sample)


def _arrays(done: Done, memory: Memory, buffers: Buffers | None) -> list[Array] | Shards | None:
    """Copy the arrays of an answer from the shared memory, which the next batch overwrites."""
    if done.places is None:
        return None
    copies = []
    for place in done.places:
        room = buffers.take(place.shape[0]) if buffers is not None and len(done.places) == 1 and place.shape else None
        if room is None or room.shape != place.shape or room.dtype != place.dtype:
            room = np.empty(place.shape, place.dtype)
        np.copyto(room, memory.array(place))
        copies.append(room)
    taken = iter(copies)
    return copies if done.shards is None else Shards([next(taken) for _ in range(count)] for count in done.shards)


def _started(descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a child that inherits the descriptors and does not receive Ctrl-C: the parent ends it."""
    command = [sys.executable, "-c", _COMMAND, *map(str, descriptors), *sys.path]
    # Blocked rather than ignored, so that it applies from the child's first instruction on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main_module() -> dict[str, Any]:
    """Return how the child imports the program's main module, for functions defined there."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return {"init_main_from_name": spec.name, "sys_argv": sys.argv}
    return {"sys_argv": sys.argv} if path is None else {"init_main_from_path": path, "sys_argv": sys.argv}


def _unusable(name: str, reason: object) -> ConfigError:
    return ConfigError(
        f"preprocess function {name} cannot be used in another process ({reason}); define it at the top level of "
        f"a module, {_INSTEAD}"
    )
