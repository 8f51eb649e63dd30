"""Values by key, each made once, by whichever thread needs it first; the others wait for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Place(Generic[Value]):
    """Where a value will be; ``error`` is what happened instead."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Value | None = None
        self.error: BaseException | None = None


class Once(Generic[Key, Value]):
    """Keeps every value that was made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Key, _Place[Value]] = {}

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("values are kept for the threads of one process")

    def of(self, keys: Sequence[Key], make: Callable[[Sequence[Key]], Sequence[Value]]) -> list[Value]:
        """Return the values of some keys, which may repeat; those that nobody made yet are made together, here.

        Args:
            keys: what to return.
            make: from new keys to their values, in order. What it makes of a key must not hang on the others.

        Raises:
            BaseException: what ``make`` raised, in every thread that waits for it; the next one to ask tries again.
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
            found.append(place.value)  # type: ignore[arg-type]  # it is there, as there was no error
        return found

    def _fill(
        self,
        mine: Sequence[Key],
        places: dict[Key, _Place[Value]],
        make: Callable[[Sequence[Key]], Sequence[Value]],
    ) -> None:
        """Make values; all own ones are done before any other thread's is waited for, so nobody waits in a circle."""
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
    """Keeps the values that were asked for last, up to a size; several threads may make the same one.

    Args:
        make: from a key to its value. size: bytes of a value. most: bytes that are kept.
    """

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
