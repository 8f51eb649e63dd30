"""Views by strides: a reshape if it has the same elements in the same order, else a selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


def _addresses(sizes: Sequence[int], strides: Sequence[int], offset: int) -> np.ndarray[Any, Any]:
    """Return the memory offset of each element."""
    found = np.full(tuple(sizes), offset, dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        found += (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
    return found.ravel()


def _places(x: Value, meta: Meta, sizes: Sequence[int], strides: Sequence[int], offset: int | None) -> Any:
    """Return the indices of the input's elements that a view by strides has."""
    if meta.strides is None:
        raise Unsupported("a view by strides of a tensor with a storage offset")
    memory = _addresses(x.shape, meta.strides, 0)
    order = np.full(x.numel, -1)
    inside = memory[(memory >= 0) & (memory < x.numel)]
    if len(np.unique(inside)) != x.numel:
        raise Unsupported("a view by strides of a value with gaps or overlaps in memory")
    order[memory] = np.arange(x.numel)
    wanted = _addresses(sizes, strides, offset or 0)
    if wanted.min() < 0 or wanted.max() >= x.numel:
        raise Unsupported("a view by strides that reaches beyond its input")
    return order[wanted]


def _is_whole(places: Any, x: Value) -> bool:
    return len(places) == x.numel and bool((places == np.arange(x.numel)).all())


@onnx_of("as_strided")
def as_strided(
    b: Builder, meta: Meta, x: Value, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Value:
    """Write a view by strides."""
    places = _places(x, meta, sizes, strides, offset)
    if _is_whole(places, x):
        return b.reshape(x, meta.shape)
    flat = b.reshape(x, (x.numel,))
    made = b.op("Gather", [flat, b.constant(places)], x.dtype, (len(places),), axis=0)
    return b.reshape(made, meta.shape)


@onnx_of("as_strided_scatter")
def as_strided_scatter(
    b: Builder,
    meta: Meta,
    x: Value,
    part: Value,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> Value:
    """Write a value with a replaced view by strides."""
    places = _places(x, meta, sizes, strides, offset)
    if _is_whole(places, x):
        return b.reshape(b.cast(part, x.dtype), x.shape)
    if len(np.unique(places)) != len(places):
        raise Unsupported("a write to a view by strides that overlaps itself")
    flat, new = b.reshape(x, (x.numel,)), b.reshape(b.cast(part, x.dtype), (len(places),))
    made = b.op("ScatterND", [flat, b.constant(places[:, None]), new], x.dtype, (x.numel,))
    return b.reshape(made, x.shape)
