"""Arguments longer than a path may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import ConfigError
from toolkit.graph.inputs import model_file
from toolkit.model_arguments import is_dump
from toolkit.ops.torch_source import is_torch_source

LONG = "d" * 300, "d/" * 3000, "[0.5, 0.5]" * 100


@pytest.mark.parametrize("word", LONG)
def test_long_model_name(word: str) -> None:
    with pytest.raises(ConfigError, match="unknown model"):
        model_file(word)


@pytest.mark.parametrize("asked", [lambda word: is_dump(Path(word)), lambda word: is_torch_source(f"{word}: ")])
@pytest.mark.parametrize("word", LONG)
def test_long_path(asked: Callable[[str], bool], word: str) -> None:
    assert not asked(word)
