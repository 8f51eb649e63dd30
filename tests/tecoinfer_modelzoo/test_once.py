"""Thread-safe caches: values computed once, errors that are retried, and an LRU limit."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tecoinfer_modelzoo.once import Once, Recent


def test_every_key_is_computed_once_by_many_threads() -> None:
    once: Once[int, int] = Once()
    made: list[int] = []
    lock, start = threading.Lock(), threading.Barrier(8)

    def make(keys: Sequence[int]) -> list[int]:
        with lock:
            made.extend(keys)
        return [key * key for key in keys]

    def ask(number: int) -> list[int]:
        start.wait()
        return [value for i in range(50) for value in once.of([(i + number) % 40, (3 * i + number) % 40, i % 40], make)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert sorted(made) == list(range(40))
    for number, values in enumerate(found):
        keys = [key for i in range(50) for key in ((i + number) % 40, (3 * i + number) % 40, i % 40)]
        assert values == [key * key for key in keys]


def test_an_error_is_raised_and_the_next_call_retries() -> None:
    once: Once[str, int] = Once()

    def fail(keys: Sequence[str]) -> list[int]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        once.of(["a", "b"], fail)
    assert once.of(["a", "a"], lambda keys: [len(keys)]) == [1, 1]
    with pytest.raises(ValueError, match="zip"):
        once.of(["c", "d"], lambda keys: [1])
    with pytest.raises(TypeError):
        pickle.dumps(once)


def test_recently_used_values_are_kept() -> None:
    made: list[int] = []

    def make(key: int) -> bytes:
        made.append(key)
        return bytes(key)

    recent = Recent(make, len, 100)
    assert [len(recent.of(key)) for key in (40, 50, 40, 20, 50, 40)] == [40, 50, 40, 20, 50, 40]
    assert made == [40, 50, 20, 50, 40]
    assert len(recent.of(500)) == 500  # larger than the limit
    assert len(recent.of(500)) == 500
    assert made[5:] == [500]
