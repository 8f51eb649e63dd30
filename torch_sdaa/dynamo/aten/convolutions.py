"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


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
        raise Unsupported("an output padding that is no smaller than the stride")


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
    """Write the gradients of a convolution's input, weight and bias, those that are asked for."""
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
        # A transposed convolution is the gradient of one whose input is its output: the two change places.
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
    """Write the gradient of the input: a transposed convolution, as wide as the input was."""
    sizes = zip(x.shape[2:], grad.shape[2:], how.stride, how.padding, how.dilation, weight.shape[2:], strict=True)
    extra = [size - ((out - 1) * s - 2 * p + d * (k - 1) + 1) for size, out, s, p, d, k in sizes]
    more: dict[str, Any] = {"strides": how.stride, "dilations": how.dilation, "group": how.groups}
    more |= {"pads": [*how.padding, *how.padding], "kernel_shape": list(weight.shape[2:])}
    return b.op("ConvTranspose", [grad, weight], x.dtype, x.shape, output_padding=extra, **more)


def _of_weight(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write the gradient of the weight: for each place of the kernel, the input under it times the gradient.

    A product of matrices for each sample and group: channels out x places, and places x (channels in x kernel).
    """
    batch, groups, kernel = x.shape[0], how.groups, weight.shape[2:]
    if groups == 1 and weight.numel > weight.shape[0] * weight.shape[1]:
        return _as_convolution(b, grad, x, weight, how)
    places = int(grad.numel // (batch * grad.shape[1]))
    columns = _columns(b, x, kernel, grad.shape[2:], how)
    per, cut = grad.shape[1] // groups, weight.numel // weight.shape[0]
    left = b.reshape(grad, (batch, groups, per, places))
    right = b.transpose(b.reshape(columns, (batch, groups, cut, places)), [0, 1, 3, 2])
    if batch == 1 and groups == 1:
        flat = b.reshape(columns, (cut, places))
        made = b.op("Gemm", [b.reshape(grad, (per, places)), flat], weight.dtype, (per, cut), transB=1)
        return b.reshape(made, weight.shape)
    made = b.op("MatMul", [left, right], weight.dtype, (batch, groups, per, cut))
    made = b.reduce("ReduceSum", made, [0], keep=False)
    return b.reshape(made, weight.shape)


def _as_convolution(b: Builder, grad: Value, x: Value, weight: Value, how: _How) -> Value:
    """Write it as one convolution: channels are the samples, samples the channels, and the gradient is the kernel.

    Stride and dilation change places; what the input has beyond the last place of the kernel is cut off.
    """
    rank = x.rank - 2
    order = [1, 0, *range(2, x.rank)]

    def turned(value: Value) -> Value:
        shape = [value.shape[axis] for axis in order]
        return b.reshape(value, shape) if value.shape[0] == 1 else b.transpose(value, order)

    sizes = zip(x.shape[2:], grad.shape[2:], how.stride, how.padding, how.dilation, strict=True)
    ends = [(size + 2 * p - s * (out - 1) - 1) // d + 1 for size, out, s, p, d in sizes]
    more: dict[str, Any] = {"strides": how.dilation, "dilations": how.stride, "pads": [*how.padding, *how.padding]}
    more["kernel_shape"] = list(grad.shape[2:])
    made = b.op("Conv", [turned(x), turned(grad)], x.dtype, (x.shape[1], grad.shape[1], *ends), **more)
    for axis in range(rank):
        if made.shape[2 + axis] != weight.shape[2 + axis]:
            made = b.slice(made, 2 + axis, 0, weight.shape[2 + axis])
    return b.transpose(made, order)


def _columns(b: Builder, x: Value, kernel: Sequence[int], out: Sequence[int], how: _How) -> Value:
    """Write the input under every place of the kernel: batch x channels x kernel x places out."""
    batch, channels = x.shape[:2]
    if any(how.padding):
        ends = [0, 0, *how.padding]
        shape = (batch, channels, *(size + 2 * p for size, p in zip(x.shape[2:], how.padding, strict=True)))
        x = b.op("Pad", [x, b.constant([*ends, *ends]), b.scalar(0, x.dtype)], x.dtype, shape)
    places = 1
    for size in out:
        places *= size
    cuts = []
    for offsets in product(*map(range, kernel)):
        part = _under(b, x, offsets, out, how)
        cuts.append(b.reshape(part, (batch, channels, 1, places)))
    if len(cuts) == 1:
        return cuts[0]
    return b.op("Concat", cuts, x.dtype, (batch, channels, len(cuts), places), axis=2)


def _under(b: Builder, x: Value, offsets: Sequence[int], out: Sequence[int], how: _How) -> Value:
    """Write the part of the input that one place of the kernel sees."""
    starts = [offset * d for offset, d in zip(offsets, how.dilation, strict=True)]
    stops = [start + (size - 1) * s + 1 for start, size, s in zip(starts, out, how.stride, strict=True)]
    shape = (*x.shape[:2], *out)
    if shape == x.shape:
        return x
    bounds = (starts, stops, range(2, x.rank), how.stride)
    return b.op("Slice", [x, *(b.constant(list(numbers)) for numbers in bounds)], x.dtype, shape)
