"""Thread-safe caches of computed values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Place(Generic[Value]):
    """A pending value, or the error that its computation raised."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Value | None = None
        self.error: BaseException | None = None


class Once(Generic[Key, Value]):
    """Cache in which each value is computed by one thread; other threads wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Key, _Place[Value]] = {}

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a cache of one process cannot be pickled")

    def of(self, keys: Sequence[Key], make: Callable[[Sequence[Key]], Sequence[Value]]) -> list[Value]:
        """Return the values of keys, which may repeat; missing ones are computed together by ``make`` in this thread.

        An error of ``make`` is raised in every waiting thread; the next call computes the value again.
        """
        with self._lock:
            mine = [key for key in dict.fromkeys(keys) if key not in self._places]
            self._places.update((key, _Place()) for key in mine)
            places = {key: self._places[key] for key in keys}
        if mine:
            self._fill(mine, places, make)
        found: list[Value] = []
        for key in keys:
            place = places[key]
            place.done.wait()
            if place.error is not None:
                raise place.error
            found.append(place.value)  # type: ignore[arg-type]  # set unless there is an error
        return found

    def _fill(
        self, mine: Sequence[Key], places: dict[Key, _Place[Value]], make: Callable[[Sequence[Key]], Sequence[Value]]
    ) -> None:
        """Compute values; a thread finishes its own before it waits for others, which excludes deadlocks."""
        try:
            for key, value in zip(mine, make(mine), strict=True):
                places[key].value = value
        except BaseException as error:
            with self._lock:
                for key in mine:
                    places[key].error = error
                    del self._places[key]
            raise
        finally:
            for key in mine:
                places[key].done.set()


class Recent(Generic[Key, Value]):
    """LRU cache of at most ``most`` bytes, as ``size`` returns them; several threads may compute the same value."""

    def __init__(self, make: Callable[[Key], Value], size: Callable[[Value], int], most: int) -> None:
        self._make, self._size, self._most = make, size, most
        self._lock, self._bytes = threading.Lock(), 0
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def of(self, key: Key) -> Value:
        """Return the value of a key."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = self._make(key)
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._bytes += self._size(value)
            while self._bytes > self._most and len(self._values) > 1:
                _, old = self._values.popitem(last=False)
                self._bytes -= self._size(old)
        return value
