"""Table of ATen operators with an ONNX form; families add to it with :func:`onnx_of`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_sdaa.dynamo.builder import NARROW, Builder, Unsupported, Value

Writer = Callable[..., Any]
"""Takes the builder, the node's :class:`Meta` and the node's arguments; returns one or several values."""

TABLE: dict[Any, Writer] = {}
"""Operator -> its writer."""

STRIDED = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)
"""Operators that depend on the memory layout of their first input."""


class Meta:
    """Shape and dtype of a node's result, of the first if there are several.

    Args:
        results: shapes and dtypes; ``None`` for unused results.
        strides: of the first input as traced; ``None`` if it has a storage offset.
        narrow: the dtype of all floating-point inputs as traced, if it is a narrow one.
    """

    def __init__(
        self,
        results: list[tuple[tuple[int, ...], torch.dtype] | None],
        strides: tuple[int, ...] | None = None,
        narrow: torch.dtype | None = None,
    ) -> None:
        self.results, self.strides, self.narrow = results, strides, narrow

    def wide(self) -> Meta:
        """Return the same with float32 for narrow dtypes, the dtype of the computation."""
        wide = dict.fromkeys(NARROW, torch.float32)
        return Meta(
            [each and (each[0], wide.get(each[1], each[1])) for each in self.results], self.strides, self.narrow
        )

    def stored(self, b: Builder, value: Value, *dtypes: torch.dtype) -> Value:
        """Return an intermediate value as the device stores it: rounded if all inputs have one of the narrow dtypes."""
        if self.narrow is None or self.narrow not in dtypes:
            return value
        return Value(b.rounded(value, self.narrow).name, value.shape, value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the first result."""
        return self._first[0]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the first result."""
        return self._first[1]

    @property
    def _first(self) -> tuple[tuple[int, ...], torch.dtype]:
        if not self.results or self.results[0] is None:
            raise Unsupported("its first result is unused")
        return self.results[0]


def onnx_of(*names: str) -> Callable[[Writer], Writer]:
    """Register a function for ``aten`` operators such as ``"add.Tensor"``; those that PyTorch lacks are skipped."""

    def put(function: Writer) -> Writer:
        for name in names:
            packet, _, overload = name.partition(".")
            found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            if found is not None:
                TABLE[found] = function
        return function

    return put


def tensor(b: Builder, operand: Any, dtype: torch.dtype) -> Value:
    """Return an operand, a value or a number, as a value of a dtype."""
    if isinstance(operand, Value):
        return b.cast(operand, dtype)
    return Value(b.scalar(operand, dtype), (), dtype)
