"""Selection by indices, and replacement or addition at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of, tensor
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


@onnx_of("embedding")
def embedding(b: Builder, meta: Meta, weight: Value, indices: Value, *_: Any) -> Value:
    """Write rows of a table."""
    return b.op("Gather", [weight, indices], meta.dtype, meta.shape, axis=0)


@onnx_of("embedding_dense_backward")
def embedding_backward(
    b: Builder, meta: Meta, grad: Value, indices: Value, rows: int, padding: int, by_count: bool
) -> Value:
    """Write the table's gradient: rows added by index, without that of the padding."""
    if by_count:
        raise Unsupported("gradients divided by the frequency of a row")
    grad = b.reshape(grad, (indices.numel, grad.shape[-1]))
    flat = b.reshape(indices, (indices.numel, 1))
    if padding >= 0:
        kept = b.op("Equal", [flat, b.scalar(padding, flat.dtype)], torch.bool, flat.shape)
        grad = b.op("Where", [kept, b.scalar(0, grad.dtype), grad], grad.dtype, grad.shape)
    zeros = b.expand(Value(b.scalar(0, grad.dtype), (), grad.dtype), (rows, grad.shape[-1]))
    return _added(b, zeros, b.cast(flat, torch.int64), grad)


def _added(b: Builder, x: Value, indices: Value, values: Value) -> Value:
    return b.op("ScatterND", [x, indices, b.cast(values, x.dtype)], x.dtype, x.shape, reduction="add")


@onnx_of("index_select")
def index_select(b: Builder, meta: Meta, x: Value, axis: int, index: Value) -> Value:
    """Write selected elements of a dimension."""
    if not x.rank:
        raise Unsupported("of a scalar")
    return b.op("Gather", [x, index], meta.dtype, meta.shape, axis=axis % x.rank)


@onnx_of("gather")
def gather(b: Builder, meta: Meta, x: Value, axis: int, index: Value, **_: Any) -> Value:
    """Write selected elements of a dimension, different ones in every row."""
    if not x.rank or not index.rank:
        raise Unsupported("of a scalar")
    if index.dtype not in (torch.int64, torch.int32):
        raise Unsupported("an index of a small integer dtype")
    return b.op("GatherElements", [x, index], meta.dtype, meta.shape, axis=axis % x.rank)


def _scatter(b: Builder, x: Value, axis: int, index: Value, source: Value, **more: Any) -> Value:
    if not x.rank or not index.rank:
        raise Unsupported("of a scalar")
    if source.shape != index.shape:  # elements beyond the index are not used
        for place, size in enumerate(index.shape):
            if source.shape[place] != size:
                source = b.slice(source, place, 0, size)
    return b.op("ScatterElements", [x, index, source], x.dtype, x.shape, axis=axis % x.rank, **more)


@onnx_of("scatter.src")
def scatter(b: Builder, meta: Meta, x: Value, axis: int, index: Value, source: Value) -> Value:
    """Write a value with replaced elements in every row."""
    return _scatter(b, x, axis, index, source)


@onnx_of("scatter.value")
def scatter_value(b: Builder, meta: Meta, x: Value, axis: int, index: Value, value: Any) -> Value:
    """Write a value with elements of every row set to a number."""
    return _scatter(b, x, axis, index, b.expand(tensor(b, value, x.dtype), index.shape))


@onnx_of("scatter_add")
def scatter_add(b: Builder, meta: Meta, x: Value, axis: int, index: Value, source: Value) -> Value:
    """Write a value with additions to elements of every row."""
    return _scatter(b, x, axis, index, b.cast(source, x.dtype), reduction="add")


# ------------------------------------------------------------------------------------------------------ several indices


class _Picked:
    """The indexed dimensions, as one index of several columns at the front of the value."""

    def __init__(self, b: Builder, x: Value, indices: Sequence[Value | None]) -> None:
        given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
        if any(index.dtype is torch.bool for _, index in given):
            raise Unsupported("a mask as an index: the size of the result depends on data")
        if any(index.dtype not in (torch.int64, torch.int32) for _, index in given):
            raise Unsupported("an index of a small integer dtype")
        axes = [axis for axis, _ in given]
        self.order = [*axes, *(axis for axis in range(x.rank) if axis not in axes)]
        self.together = axes == list(range(axes[0], axes[0] + len(axes)))
        self.first = axes[0]
        self.shape = torch.broadcast_shapes(*(index.shape for _, index in given))
        columns = [self._column(b, index, x.shape[axis]) for axis, index in given]
        last = (*self.shape, len(columns))
        self.index = columns[0] if len(columns) == 1 else b.op("Concat", columns, torch.int64, last, axis=-1)
        self.rest = [d for axis, d in enumerate(x.shape) if axis not in axes]

    def _column(self, b: Builder, index: Value, size: int) -> Value:
        index = b.expand(b.cast(index, torch.int64), self.shape)
        return b.reshape(index, (*self.shape, 1))

    def to_front(self) -> list[int]:
        """Return the order of a result's dimensions with those of the indices first."""
        count, ahead = len(self.shape), self.first if self.together else 0
        return [*range(ahead, ahead + count), *range(ahead), *range(ahead + count, count + len(self.rest))]


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(axis) for axis in range(len(order))]


@onnx_of("index.Tensor", "_unsafe_index.Tensor")
def index(b: Builder, meta: Meta, x: Value, indices: Sequence[Value | None]) -> Value:
    """Write the selection by indices of several dimensions."""
    picked = _Picked(b, x, indices)
    moved = b.transpose(x, picked.order)
    made = b.op("GatherND", [moved, picked.index], meta.dtype, (*picked.shape, *picked.rest))
    return b.transpose(made, _inverse(picked.to_front()))


@onnx_of("index_put", "_unsafe_index_put")
def index_put(
    b: Builder, meta: Meta, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """Write a value with the selection by indices replaced, or added to."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool and not values.rank:
        if accumulate:
            raise Unsupported("a number added under a mask")
        mask = b.reshape(indices[0], (*indices[0].shape, *(1 for _ in range(x.rank - indices[0].rank))))
        return b.op("Where", [mask, values, x], meta.dtype, meta.shape)
    picked = _Picked(b, x, indices)
    front = picked.to_front()
    whole = (*picked.shape, *picked.rest)
    values = b.transpose(b.expand(values, [whole[place] for place in _inverse(front)]), front)
    moved = b.transpose(x, picked.order)
    if accumulate:
        put = _added(b, moved, picked.index, values)
    else:
        put = b.op("ScatterND", [moved, picked.index, values], x.dtype, moved.shape)
    return b.transpose(put, _inverse(picked.order))
