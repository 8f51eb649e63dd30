"""Values of the symbols of a traced graph in one call: sizes of dynamic dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

Numbers = Mapping[Any, int]
"""Symbol -> size."""


class Sizes:
    """Converts traced sizes to numbers (``numbers``: symbol -> number; empty for a graph of fixed shapes)."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = dict(numbers or {})

    def number(self, size: Any) -> int:
        """Return a size as a number; raise LookupError if it depends on data, or on a symbol that no input has."""
        if isinstance(size, torch.SymInt):
            found = size.node.expr.xreplace(self._numbers)
            if not isinstance(found, int) and not found.is_number:
                raise LookupError(f"the size {found} is unknown before the call")
            return int(found)
        return int(size)

    def shape(self, sizes: Iterable[Any]) -> tuple[int, ...]:
        """Return sizes as numbers."""
        return tuple(map(self.number, sizes))


def bound(places: Sequence[Any], values: Sequence[Any]) -> dict[Any, int]:
    """Return the values of the symbols of a graph's inputs in one call.

    Args:
        places: the traced inputs, tensors and numbers. values: those of the call.
    """
    found: dict[Any, int] = {}
    for place, value in zip(places, values, strict=True):
        if isinstance(place, torch.SymInt):
            _take(found, place, int(value))
        elif isinstance(place, torch.Tensor):
            for size, number in zip(place.shape, value.shape, strict=True):
                _take(found, size, int(number))
    return found


def _take(found: dict[Any, int], size: Any, number: int) -> None:
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        found[size.node.expr] = number


def is_dynamic(place: Any) -> bool:
    """Return whether a traced input has a symbolic size."""
    if isinstance(place, torch.SymInt):
        return True
    return isinstance(place, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in place.shape)
