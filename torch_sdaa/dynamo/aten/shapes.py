"""Operators that move numbers: sizes, orders, parts, joins, casts, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of, tensor
from torch_sdaa.dynamo.builder import Builder, Value

_LAST = 1 << 62


@onnx_of(
    "view",
    "reshape",
    "_unsafe_view",
    "_reshape_alias",
    "unsqueeze",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "flatten.using_ints",
)
def view(b: Builder, meta: Meta, x: Value, *_: Any) -> Value:
    """Write the same elements in another shape."""
    return b.reshape(x, meta.shape)


@onnx_of("permute")
def permute(b: Builder, meta: Meta, x: Value, order: Sequence[int]) -> Value:
    """Write permuted dimensions."""
    return b.transpose(x, order)


@onnx_of("t")
def t(b: Builder, meta: Meta, x: Value) -> Value:
    """Write a transposed matrix."""
    return b.transpose(x, range(x.rank)[::-1])


@onnx_of("transpose.int")
def transpose(b: Builder, meta: Meta, x: Value, first: int, second: int) -> Value:
    """Write two exchanged dimensions."""
    order = list(range(x.rank))
    if order:
        order[first], order[second] = order[second], order[first]
    return b.transpose(x, order)


@onnx_of("expand")
def expand(b: Builder, meta: Meta, x: Value, *_: Any, **__: Any) -> Value:
    """Write a value expanded along dimensions of size 1."""
    return b.expand(x, meta.shape)


@onnx_of("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "_conj_physical", "resolve_conj")
def same(b: Builder, meta: Meta, x: Value, **_: Any) -> Value:
    """Write the value itself: tensors of a graph are not modified."""
    return x


@onnx_of("_to_copy", "to.dtype")
def to_copy(b: Builder, meta: Meta, x: Value, *_: Any, **__: Any) -> Value:
    """Write a value in another dtype."""
    return b.cast(x, meta.dtype)


@onnx_of("copy")
def copy(b: Builder, meta: Meta, x: Value, other: Value, *_: Any) -> Value:
    """Write another value in the shape and dtype of the first."""
    return b.expand(b.cast(other, meta.dtype), meta.shape)


# --------------------------------------------------------------------------------------------------------------- parts


def _clamped(place: int | None, size: int, otherwise: int) -> int:
    if place is None:
        return otherwise
    place = place + size if place < 0 else place
    return min(max(place, 0), size)


@onnx_of("slice.Tensor")
def slice_(
    b: Builder, meta: Meta, x: Value, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Value:
    """Write a slice of a dimension."""
    axis %= x.rank
    first, last = _clamped(start, x.shape[axis], 0), _clamped(stop, x.shape[axis], x.shape[axis])
    return b.slice(x, axis, first, last, step) if meta.shape != x.shape else x


@onnx_of("select.int")
def select(b: Builder, meta: Meta, x: Value, axis: int, index: int) -> Value:
    """Write one element of a dimension."""
    axis %= x.rank
    index %= x.shape[axis]
    return b.reshape(b.slice(x, axis, index, index + 1), meta.shape)


def parts(b: Builder, meta: Meta, x: Value, sizes: Sequence[int], axis: int) -> list[Value | None]:
    """Write consecutive slices of a dimension."""
    axis %= x.rank
    made: list[Value | None] = []
    start = 0
    for place, size in enumerate(sizes):
        used = meta.results[place] is not None
        made.append(b.slice(x, axis, start, start + size) if used else None)
        start += size
    return made


@onnx_of("split_with_sizes")
def split_with_sizes(b: Builder, meta: Meta, x: Value, sizes: Sequence[int], axis: int = 0) -> list[Value | None]:
    """Write slices of given sizes."""
    return parts(b, meta, x, sizes, axis)


@onnx_of("split.Tensor")
def split_tensor(b: Builder, meta: Meta, x: Value, size: int, axis: int = 0) -> list[Value | None]:
    """Write slices of one size; the last may be smaller."""
    whole = x.shape[axis]
    return parts(b, meta, x, [min(size, whole - start) for start in range(0, whole, size)], axis)


@onnx_of("unbind.int")
def unbind(b: Builder, meta: Meta, x: Value, axis: int = 0) -> list[Value | None]:
    """Write every element of a dimension separately."""
    made = parts(b, meta, x, [1] * x.shape[axis], axis)
    shape = [d for i, d in enumerate(x.shape) if i != axis % x.rank]
    return [None if each is None else b.reshape(each, shape) for each in made]


@onnx_of("slice_scatter")
def slice_scatter(
    b: Builder, meta: Meta, x: Value, part: Value, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Value:
    """Write a value with a replaced slice."""
    axis %= x.rank
    first, last = _clamped(start, x.shape[axis], 0), _clamped(stop, x.shape[axis], x.shape[axis])
    part = b.cast(part, meta.dtype)
    if step == 1:
        around = [b.slice(x, axis, 0, first), part, b.slice(x, axis, last, x.shape[axis])]
        kept = [each for each in around if each.shape[axis]]
        return _joined(b, kept, axis, meta)
    places = list(range(first, last, step))
    index = b.constant([[place] for place in places])
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    back = [order.index(i) for i in range(x.rank)]
    moved = b.transpose(x, order)
    put = b.op("ScatterND", [moved, index, b.transpose(part, order)], meta.dtype, moved.shape)
    return b.transpose(put, back)


@onnx_of("select_scatter")
def select_scatter(b: Builder, meta: Meta, x: Value, part: Value, axis: int, index: int) -> Value:
    """Write a value with one replaced element of a dimension."""
    axis %= x.rank
    index %= x.shape[axis]
    shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
    return slice_scatter(b, meta, x, b.reshape(part, shape), axis, index, index + 1)


@onnx_of("slice_backward")
def slice_backward(
    b: Builder, meta: Meta, grad: Value, sizes: Sequence[int], axis: int, start: int, stop: int, step: int
) -> Value:
    """Write the gradient of a slice: padded by zeros."""
    axis %= len(sizes)
    if step != 1:
        zeros = b.expand(Value(b.scalar(0, meta.dtype), (), meta.dtype), meta.shape)
        return slice_scatter(b, meta, zeros, grad, axis, start, stop, step)
    first, last = _clamped(start, sizes[axis], 0), _clamped(stop, sizes[axis], sizes[axis])
    return _padded(b, meta, grad, {axis: (first, sizes[axis] - last)}, 0)


@onnx_of("select_backward")
def select_backward(b: Builder, meta: Meta, grad: Value, sizes: Sequence[int], axis: int, index: int) -> Value:
    """Write the gradient of one element: padded by zeros."""
    axis %= len(sizes)
    index %= sizes[axis]
    part = b.reshape(grad, [1 if i == axis else d for i, d in enumerate(sizes)])
    return _padded(b, meta, part, {axis: (index, sizes[axis] - index - 1)}, 0)


# --------------------------------------------------------------------------------------------------------------- joins


def _joined(b: Builder, values: Sequence[Value], axis: int, meta: Meta) -> Value:
    if len(values) == 1:
        return b.cast(values[0], meta.dtype)
    return b.op("Concat", [b.cast(v, meta.dtype) for v in values], meta.dtype, meta.shape, axis=axis)


@onnx_of("cat")
def cat(b: Builder, meta: Meta, values: Sequence[Value], axis: int = 0) -> Value:
    """Write concatenated values; 1-D empty ones are skipped, as in PyTorch."""
    kept = [v for v in values if v.shape != (0,)] or list(values[:1])
    return _joined(b, kept, axis % max(1, len(meta.shape)), meta)


@onnx_of("stack")
def stack(b: Builder, meta: Meta, values: Sequence[Value], axis: int = 0) -> Value:
    """Write values along a new dimension."""
    axis %= len(meta.shape)
    shape = [1 if i == axis else d for i, d in enumerate(meta.shape)]
    return _joined(b, [b.reshape(v, shape) for v in values], axis, meta)


@onnx_of("constant_pad_nd")
def constant_pad(b: Builder, meta: Meta, x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    """Write a value padded by a number; negative widths cut."""
    pairs = {x.rank - 1 - i: (pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)}
    return _padded(b, meta, x, pairs, value)


def _padded(b: Builder, meta: Meta, x: Value, pairs: dict[int, tuple[int, int]], number: Any) -> Value:
    for axis, (before, after) in pairs.items():
        if before < 0 or after < 0:
            x = b.slice(x, axis, max(0, -before), x.shape[axis] + min(0, after))
    begins = [max(0, pairs.get(axis, (0, 0))[0]) for axis in range(x.rank)]
    ends = [max(0, pairs.get(axis, (0, 0))[1]) for axis in range(x.rank)]
    if not any((*begins, *ends)):
        return b.cast(x, meta.dtype)
    if meta.dtype is torch.bool:
        x = b.cast(x, torch.int32)
    made = b.op("Pad", [x, b.constant([*begins, *ends]), b.scalar(number, x.dtype)], x.dtype, meta.shape)
    return b.cast(made, meta.dtype)


@onnx_of("repeat")
def repeat(b: Builder, meta: Meta, x: Value, times: Sequence[int]) -> Value:
    """Write a value repeated along each dimension."""
    x = b.reshape(x, (1,) * (len(times) - x.rank) + x.shape)
    return b.op("Tile", [x, b.constant(list(times))], meta.dtype, meta.shape)


@onnx_of("flip")
def flip(b: Builder, meta: Meta, x: Value, axes: Sequence[int]) -> Value:
    """Write reversed dimensions."""
    axes = [axis % x.rank for axis in axes]
    if not axes:
        return x
    starts, stops, steps = ([number] * len(axes) for number in (-1, -_LAST, -1))
    bounds = [b.constant(numbers) for numbers in (starts, stops, axes, steps)]
    return b.op("Slice", [x, *bounds], meta.dtype, meta.shape)


@onnx_of("roll")
def roll(b: Builder, meta: Meta, x: Value, shifts: Sequence[int], axes: Sequence[int] = ()) -> Value:
    """Write a value rolled along dimensions."""
    if not axes:
        flat = b.reshape(x, (x.numel,))
        return b.reshape(_rolled(b, flat, shifts[0], 0), meta.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(b, x, shift, axis % x.rank)
    return x


def _rolled(b: Builder, x: Value, shift: int, axis: int) -> Value:
    size = x.shape[axis]
    cut = (-shift) % size if size else 0
    if not cut:
        return x
    both = [b.slice(x, axis, cut, size), b.slice(x, axis, 0, cut)]
    return b.op("Concat", both, x.dtype, x.shape, axis=axis)


def _part_of_matrix(upper: int) -> Any:
    def write(b: Builder, meta: Meta, x: Value, diagonal: int = 0) -> Value:
        whole = b.cast(x, torch.int32) if x.dtype is torch.bool else x
        made = b.op("Trilu", [whole, b.constant(diagonal)], whole.dtype, meta.shape, upper=upper)
        return b.cast(made, meta.dtype)

    return write


onnx_of("tril")(_part_of_matrix(0))
onnx_of("triu")(_part_of_matrix(1))

# ---------------------------------------------------------------------------------------------------------- constants


@onnx_of("full")
def full(b: Builder, meta: Meta, sizes: Sequence[int], value: Any, **_: Any) -> Value:
    """Write one number in a given shape."""
    return b.expand(tensor(b, value, meta.dtype), meta.shape)


@onnx_of("full_like", "new_full")
def full_like(b: Builder, meta: Meta, x: Value, *value: Any, **_: Any) -> Value:
    """Write one number in the shape of a tensor."""
    return b.expand(tensor(b, value[-1], meta.dtype), meta.shape)


@onnx_of(
    "zeros",
    "zeros_like",
    "new_zeros",
    "empty.memory_format",
    "empty_like",
    "new_empty",
    "empty_permuted",
    "empty_strided",
    "new_empty_strided",
)
def zeros(b: Builder, meta: Meta, *_: Any, **__: Any) -> Value:
    """Write zeros, also for uninitialized tensors."""
    return b.expand(Value(b.scalar(0, meta.dtype), (), meta.dtype), meta.shape)


@onnx_of("ones", "ones_like", "new_ones")
def ones(b: Builder, meta: Meta, *_: Any, **__: Any) -> Value:
    """Write ones."""
    return b.expand(Value(b.scalar(1, meta.dtype), (), meta.dtype), meta.shape)


@onnx_of("scalar_tensor")
def scalar_tensor(b: Builder, meta: Meta, value: Any, **_: Any) -> Value:
    """Write a scalar."""
    return tensor(b, value, meta.dtype)


@onnx_of("arange", "arange.start", "arange.start_step")
def arange(b: Builder, meta: Meta, *bounds: Any, **_: Any) -> Value:
    """Write a range of numbers, as a constant."""
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) > 2 else 1)
    row = np.arange(meta.shape[0], dtype=np.float64 if meta.dtype.is_floating_point else np.int64)
    return Value(b.constant(row * step + start, meta.dtype), meta.shape, meta.dtype)
