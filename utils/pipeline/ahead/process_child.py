"""The child's side of :mod:`utils.pipeline.ahead.processes`: preprocess batches received through a pipe."""

from __future__ import annotations

import math
import mmap
import os
import select
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Timeline
from utils.datasets.base import Batch
from utils.pipeline.run.pipeline import SAMPLE_ERRORS, Buffers, Failure, Preprocessor, prepare
from utils.tasks.prepared import Prepared, Shards

_ALIGNMENT = 64
"""Alignment of arrays in bytes: a cache line."""


class ArrayPlace(NamedTuple):
    """Position of an array in the shared memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int


class Done(NamedTuple):
    """A batch preprocessed by a child, without its samples; ``shards``: number of arrays of each SPA, or ``None``."""

    places: list[ArrayPlace] | None
    good: tuple[int, ...] | None
    failures: list[Failure]
    nan_inputs: list[str]
    spans: list[tuple[Any, ...]]
    contexts: list[Any] | None = None
    shards: list[int] | None = None


class Alone(NamedTuple):
    """A request for one sample, not collated."""

    sample: Any


class Raised(NamedTuple):
    """An error that ends the run, and its traceback in the child."""

    error: BaseException
    origin: str


class Memory:
    """A memory file shared by two processes; it only grows. The caller closes its descriptor ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: mmap.mmap | None = None

    def bytes(self, size: int) -> Array:
        """Return the memory, of at least ``size`` bytes, as uint8. Arrays returned before stay valid."""
        if self._map is None or len(self._map) < size:
            if os.fstat(self._fd).st_size < size:
                os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        return np.frombuffer(self._map, np.uint8)

    def array(self, place: ArrayPlace) -> Array:
        """Return the array at a position, without a copy."""
        size = max(1, math.prod(place.shape) * place.dtype.itemsize)
        memory = self.bytes(place.offset + size)
        array: Array = np.ndarray(place.shape, place.dtype, buffer=memory, offset=place.offset)
        return array


in_child = threading.Event()
"""Set in a preprocessing child process."""


def serve(pipe: str, memory: str) -> None:
    """Preprocess batches from the pipe until it is closed; ``pipe``, ``memory``: inherited file descriptors."""
    in_child.set()
    connection, timeline = Connection(int(pipe)), Timeline(keep=2**24)
    room = _Room(Memory(int(memory)))
    threading.Thread(target=_end_with_parent, args=(int(pipe),), daemon=True).start()
    try:
        preprocessor = _received(connection)
        while preprocessor is not None:
            answer = _answer(connection.recv(), preprocessor, timeline, room)
            sys.stdout.flush()  # the parent ends this process without a flush
            connection.send(answer)
    except (EOFError, ConnectionError):
        return  # the parent has ended


def _end_with_parent(pipe: int) -> None:
    """End this process when its parent ends, also during a batch."""
    ended = select.poll()
    ended.register(pipe, 0)  # hang-up only, which is always reported
    ended.poll()
    os._exit(0)


def _received(connection: Connection) -> Preprocessor | None:
    """Receive the preprocessor, and send ``None`` or the error."""
    try:
        spawn.prepare(connection.recv())
        preprocessor: Preprocessor = connection.recv()
    except Exception as error:  # noqa: BLE001 -- the parent raises it
        connection.send(f"{type(error).__name__}: {error}")
        return None
    connection.send(None)
    return preprocessor


def _answer(
    asked: Batch | Alone, preprocessor: Preprocessor, timeline: Timeline, room: _Room
) -> Done | Prepared | Failure | Raised:
    timeline.clear()
    try:
        if isinstance(asked, Alone):
            return _alone(asked, preprocessor)
        return _done(asked, preprocessor, timeline, room)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 -- the parent raises it, SystemExit of foreign code too
        return _raised(error)


def _alone(asked: Alone, preprocessor: Preprocessor) -> Prepared | Failure:
    try:
        return preprocessor.prepare([asked.sample])
    except ConfigError:
        raise
    except SAMPLE_ERRORS as error:
        return Failure("", str(error))


def _done(batch: Batch, preprocessor: Preprocessor, timeline: Timeline, room: _Room) -> Done:
    ready = prepare(batch, preprocessor, timeline, room if preprocessor.takes_out else None)
    shards = [len(shard) for shard in ready.arrays] if isinstance(ready.arrays, Shards) else None
    places = None if ready.arrays is None else room.placed(flat(ready.arrays))
    spans = [tuple(span) for span in timeline.spans]
    return Done(places, ready.good, ready.failures, ready.nan_inputs, spans, ready.contexts, shards)


def flat(arrays: list[Array] | Shards) -> list[Array]:
    """Return the arrays of all SPAs in one list."""
    return [array for shard in arrays for array in shard] if isinstance(arrays, Shards) else arrays


def _raised(error: BaseException) -> Raised:
    origin = traceback.format_exc()
    try:
        reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001 -- an error that cannot be pickled is sent as text
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Raised(error, origin)


class _Room(Buffers):
    """The shared memory as the only buffer of a preprocess function with ``out``."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self._whole: ArrayPlace | None = None

    def take(self, count: int) -> Array | None:
        """Return an array for ``count`` samples; ``None`` before the first batch shows their size."""
        if self._whole is None or count > self._whole.shape[0]:
            return None
        return self._memory.array(self._whole._replace(shape=(count, *self._whole.shape[1:])))

    def placed(self, arrays: Sequence[Array]) -> list[ArrayPlace]:
        """Copy arrays into the shared memory, unless they are there already, and return their positions."""
        memory = self._memory.bytes(1)
        if len(arrays) == 1 and arrays[0].flags.c_contiguous and arrays[0].ctypes.data == memory.ctypes.data:
            return [ArrayPlace(arrays[0].shape, arrays[0].dtype, 0)]
        # A result may be a view of the memory that is about to be overwritten.
        arrays = [array.copy() if np.may_share_memory(array, memory) else array for array in arrays]
        places, end = [], 0
        for array in arrays:
            places.append(ArrayPlace(array.shape, array.dtype, end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        for place, array in zip(places, arrays, strict=True):
            np.copyto(self._memory.array(place), array)
        self._whole = places[0] if len(places) == 1 and places[0].shape else None
        return places
