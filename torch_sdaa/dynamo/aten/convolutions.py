"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value

_MOST_KERNEL = 9
"""Maximum elements of a kernel for which the gradient of its weight is one product; beyond, the input is copied too
often.
"""

_MOST_COLUMNS = 2**25
"""Maximum elements of the unfolded input, 128 MiB of float32; beyond, the input is not unfolded."""

_FEW = 400
"""Maximum elements of a sample's gradient for which one product of all samples is faster than one for each."""

_TURNED = 1000
"""Minimum elements of the gradient of all samples for which ONNX Runtime is faster with a flipped kernel than
transposed.
"""


def _full(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


@onnx_of("convolution")
def convolution(
    b: Builder,
    meta: Meta,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Write a convolution, or a transposed one."""
    rank = weight.rank - 2
    if x.rank != weight.rank:
        raise Unsupported("a convolution without a batch")
    pads = _full(padding, rank)
    more: dict[str, Any] = {"strides": _full(stride, rank), "dilations": _full(dilation, rank), "group": groups}
    more |= {"pads": [*pads, *pads], "kernel_shape": list(weight.shape[2:])}
    operands = [x, weight] if bias is None else [x, weight, bias]
    if not transposed:
        return b.op("Conv", operands, meta.dtype, meta.shape, **more)
    extra = _full(output_padding, rank)
    _check_extra(extra, more["strides"])
    return b.op("ConvTranspose", operands, meta.dtype, meta.shape, output_padding=extra, **more)


def _check_extra(extra: Sequence[int], stride: Sequence[int]) -> None:
    if any(end >= step for end, step in zip(extra, stride, strict=True)):
        raise Unsupported("an output padding not smaller than the stride")


@onnx_of("convolution_backward")
def convolution_backward(
    b: Builder,
    meta: Meta,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    """Write the requested gradients of a convolution's input, weight and bias."""
    rank = weight.rank - 2
    if x.rank != weight.rank:
        raise Unsupported("a convolution without a batch")
    stride, padding, dilation = (_full(numbers, rank) for numbers in (stride, padding, dilation))
    if transposed:
        _check_extra(_full(output_padding, rank), stride)
    how = _How(stride, padding, dilation, groups)
    wanted = [asked and meta.results[place] is not None for place, asked in enumerate(mask)]
    of_x = of_weight = of_bias = None
    if wanted[0]:
        of_x = _forward(b, grad, weight, x, how) if transposed else _of_input(b, grad, x, weight, how)
    if wanted[1]:
        # A transposed convolution is the gradient of a convolution with input and output exchanged.
        of_weight = _of_weight(b, x, grad, weight, how) if transposed else _of_weight(b, grad, x, weight, how)
    if wanted[2]:
        of_bias = b.reduce("ReduceSum", grad, [0, *range(2, grad.rank)], keep=False)
    return [of_x, of_weight, of_bias]


class _How:
    def __init__(self, stride: list[int], padding: list[int], dilation: list[int], groups: int) -> None:
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups


def _forward(b: Builder, grad: Value, weight: Value, x: Value, how: _How) -> Value:
    more: dict[str, Any] = {"strides": how.stride, "dilations": how.dilation, "group": how.groups}
    more |= {"pads": [*how.padding, *how.padding], "kernel_shape": list(weight.shape[2:])}
    return b.op("Conv", [grad, weight], x.dtype, x.shape, **more)


def _of_input(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write the gradient of the input: a transposed convolution with the input's size.

    With stride 1 it is a convolution with the flipped kernel, which is faster for large sizes.
    """
    reach = [d * (k - 1) - p for d, k, p in zip(how.dilation, weight.shape[2:], how.padding, strict=True)]
    if how.groups == 1 and set(how.stride) == {1} and min(reach) >= 0 and grad.numel // grad.shape[1] >= _TURNED:
        pads: dict[str, Any] = {"pads": [*reach, *reach], "kernel_shape": list(weight.shape[2:])}
        given = [grad, _turned(b, weight)]
        return b.op("Conv", given, x.dtype, x.shape, strides=how.stride, dilations=how.dilation, **pads)
    sizes = zip(x.shape[2:], grad.shape[2:], how.stride, how.padding, how.dilation, weight.shape[2:], strict=True)
    extra = [size - ((out - 1) * s - 2 * p + d * (k - 1) + 1) for size, out, s, p, d, k in sizes]
    more: dict[str, Any] = {"strides": how.stride, "dilations": how.dilation, "group": how.groups}
    more |= {"pads": [*how.padding, *how.padding], "kernel_shape": list(weight.shape[2:])}
    return b.op("ConvTranspose", [grad, weight], x.dtype, x.shape, output_padding=extra, **more)


def _of_weight(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write the gradient of the weight: for each kernel element, the input under it times the gradient.

    A matrix product for each sample and group: channels out x places, and places x (channels in x kernel).
    """
    batch, groups, kernel = x.shape[0], how.groups, weight.shape[2:]
    places = prod(grad.shape[2:])
    if groups == 1 and prod(kernel) > 1:
        few = prod(kernel) <= _MOST_KERNEL and prod(kernel) * x.shape[1] * places * batch <= _MOST_COLUMNS
        return (_as_product if few else _as_convolution)(b, grad, x, weight, how)
    if groups == 1 and (batch == 1 or places <= _FEW):
        return _as_product(b, grad, x, weight, how)
    columns = _columns(b, x, kernel, grad.shape[2:], how, (*x.shape[:2], 1, places))
    per, cut = grad.shape[1] // groups, weight.numel // weight.shape[0]
    left = b.reshape(grad, (batch, groups, per, places))
    right = b.transpose(b.reshape(columns, (batch, groups, cut, places)), [0, 1, 3, 2])
    made = b.op("MatMul", [left, right], weight.dtype, (batch, groups, per, cut))
    made = b.reduce("ReduceSum", made, [0], keep=False)
    return b.reshape(made, weight.shape)


def _as_product(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write it as one product for all samples: channels out x places, and places x (channels in x kernel)."""
    x, grad = _channels_first(b, x), _channels_first(b, grad)
    places = grad.numel // grad.shape[0]
    columns = _columns(b, x, weight.shape[2:], grad.shape[2:], how, (x.shape[0], 1, places))
    cut = weight.numel // weight.shape[0]
    given = [b.reshape(grad, (grad.shape[0], places)), b.reshape(columns, (cut, places))]
    return b.reshape(b.op("Gemm", given, weight.dtype, (weight.shape[0], cut), transB=1), weight.shape)


def _channels_first(b: Builder, value: Value) -> Value:
    """Exchange samples and channels; a reshape if either is 1."""
    order = [1, 0, *range(2, value.rank)]
    shape = [value.shape[axis] for axis in order]
    return b.reshape(value, shape) if 1 in shape[:2] else b.transpose(value, order)


def _turned(b: Builder, weight: Value) -> Value:
    """Flip a kernel in all dimensions, and exchange its input and output channels."""
    weight = _channels_first(b, weight)
    axes = [axis for axis in range(2, weight.rank) if weight.shape[axis] > 1]
    if not axes:
        return weight
    bounds = ([-1] * len(axes), [-(2**31)] * len(axes), axes, [-1] * len(axes))
    return b.op("Slice", [weight, *(b.constant(numbers) for numbers in bounds)], weight.dtype, weight.shape)


def _as_convolution(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write it as one convolution with samples as channels, channels as samples and the gradient as kernel.

    Stride and dilation are exchanged; results beyond the kernel's size are cut off.
    """
    rank = x.rank - 2
    sizes = zip(x.shape[2:], grad.shape[2:], how.stride, how.padding, how.dilation, strict=True)
    ends = [(size + 2 * p - s * (out - 1) - 1) // d + 1 for size, out, s, p, d in sizes]
    more: dict[str, Any] = {"strides": how.dilation, "dilations": how.stride, "pads": [*how.padding, *how.padding]}
    more["kernel_shape"] = list(grad.shape[2:])
    given, shape = [_channels_first(b, x), _channels_first(b, grad)], (x.shape[1], grad.shape[1], *ends)
    made = b.op("Conv", given, x.dtype, shape, **more)
    for axis in range(rank):
        if made.shape[2 + axis] != weight.shape[2 + axis]:
            made = b.slice(made, 2 + axis, 0, weight.shape[2 + axis])
    return b.transpose(made, [1, 0, *range(2, x.rank)])


def _columns(
    b: Builder, x: Value, kernel: Sequence[int], out: Sequence[int], how: _How, shape: tuple[int, ...]
) -> Value:
    """Write the unfolded input: the input under every kernel element.

    Args:
        shape: of the input under one element; they are joined along the second last axis.
    """
    if any(how.padding):
        ends = [0, 0, *how.padding]
        padded = (*x.shape[:2], *(size + 2 * p for size, p in zip(x.shape[2:], how.padding, strict=True)))
        x = b.op("Pad", [x, b.constant([*ends, *ends]), b.scalar(0, x.dtype)], x.dtype, padded)
    cuts = [b.reshape(_under(b, x, offsets, out, how), shape) for offsets in product(*map(range, kernel))]
    if len(cuts) == 1:
        return cuts[0]
    axis = len(shape) - 2
    return b.op("Concat", cuts, x.dtype, (*shape[:axis], len(cuts), shape[-1]), axis=axis)


def _under(b: Builder, x: Value, offsets: Sequence[int], out: Sequence[int], how: _How) -> Value:
    """Write the part of the input under one kernel element."""
    starts = [offset * d for offset, d in zip(offsets, how.dilation, strict=True)]
    stops = [start + (size - 1) * s + 1 for start, size, s in zip(starts, out, how.stride, strict=True)]
    shape = (*x.shape[:2], *out)
    if shape == x.shape:
        return x
    bounds = (starts, stops, range(2, x.rank), how.stride)
    return b.op("Slice", [x, *(b.constant(list(numbers)) for numbers in bounds)], x.dtype, shape)
