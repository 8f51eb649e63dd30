"""Parse shapes and sizes of command lines, without evaluating them.

A shape is integers separated by ``*`` or ``x``: ``16*3*224*224``, with an optional name before it
(``input:16x3x224x224``); ``scalar`` is the shape without dimensions. Shapes of several inputs are separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine import ConfigError

BATCH = "N"
"""Stands for the batch in a shape."""

_NUMBER = "[0-9]{1,9}"  # more than nine digits are a typing error
_DIM = r"([^=\s]+)=([0-9]{1,9}(?:,[0-9]{1,9})*)"  # compiled when used: most runs need no pattern


def _pattern(number: str) -> str:
    return rf"{number}(\*{number})*|{number}(x{number})*|scalar"


_WHOLE, _WITH_BATCH = _pattern(_NUMBER), _pattern(f"(?:{_NUMBER}|{BATCH})")


def read_shapes(text: str, *, batch: bool = False) -> list[tuple[str, tuple[int | None, ...]]]:
    """Parse ``[name:]shape[,[name:]shape...]``; a missing name is empty.

    Args:
        text: as written. batch: whether a dimension may be ``N``, which is ``None`` in the result.

    Raises:
        ConfigError: the text has another form.
    """
    return [_shape(entry.strip(), text, batch) for entry in text.split(",")]


def _shape(entry: str, text: str, batch: bool) -> tuple[str, tuple[int | None, ...]]:
    name, _, shape = entry.rpartition(":")
    if re.fullmatch(_WITH_BATCH if batch else _WHOLE, shape) is None or (":" in entry and not name):
        first, numbers = (BATCH, f"whole numbers and {BATCH} for the batch") if batch else ("16", "whole numbers")
        raise ConfigError(
            f"--input_shapes {text!r}: {entry!r} is not a shape; write {numbers} such as {first}*3*224*224 or "
            f"input:{first}x3x224x224, and commas between the shapes of several inputs"
        )
    words = [] if shape == "scalar" else re.split(r"[*x]", shape)
    sizes = tuple(None if word == BATCH else int(word) for word in words)
    if 0 in sizes:
        raise ConfigError(f"--input_shapes {text!r}: {entry!r} has a dimension of 0; every dimension is at least 1")
    return name, sizes


def parse_shapes(text: str, batch_size: int) -> tuple[tuple[str, ...], tuple[tuple[int | None, ...], ...]]:
    """Parse the shapes of a call to the whole card.

    Args:
        text: as written. A dimension ``N`` is the batch, and so is a first dimension of ``batch_size``.
        batch_size: samples in a call.

    Returns:
        The inputs' names (empty without names), and their shapes with ``None`` for the batch.

    Raises:
        ConfigError: the text has another form, or only some of the inputs have names.
    """
    found = read_shapes(text, batch=True)
    names = tuple(name for name, _ in found)
    if any(names) and not all(names):
        raise ConfigError(f"--input_shapes {text!r}: name every input or none")
    return (names if all(names) else ()), tuple(_of_batch(shape, batch_size) for _, shape in found)


def _of_batch(shape: tuple[int | None, ...], batch_size: int) -> tuple[int | None, ...]:
    return (None, *shape[1:]) if shape[:1] == (batch_size,) and None not in shape else shape


def parse_dims(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse ``name=size`` or ``name=size,size``, one per symbolic dimension; sizes are sorted.

    Raises:
        ConfigError: a word has another form, or a name is given twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        match = re.fullmatch(_DIM, word)
        if match is None:
            raise ConfigError(f"--dim {word!r} is not NAME=SIZE; write a symbol and its sizes, such as seq=64,128")
        sizes = tuple(sorted({int(size) for size in match[2].split(",")}))
        if match[1] in found:
            raise ConfigError(f"--dim {match[1]!r} is given twice; list its sizes in one: {match[1]}=64,128")
        found[match[1]] = sizes
    return found
