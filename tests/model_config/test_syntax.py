from __future__ import annotations

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model_config.syntax import parsed


@pytest.fixture
def other_threads_come_in() -> Iterator[None]:
    """Force frequent garbage collections that yield to another thread."""

    def give_way(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


def test_threads_parse_in_parallel(other_threads_come_in: None) -> None:
    source = Path(ast.__file__).read_bytes()

    with ThreadPoolExecutor(2) as pool:
        trees = list(pool.map(parsed, [source] * 8))

    assert len({len(tree.body) for tree in trees}) == 1


def test_invalid_python_raises() -> None:
    with pytest.raises(SyntaxError):
        parsed("def")
