"""Pooling and interpolation, with their gradients.

Averages and interpolations are one matrix per dimension; their gradients use the transposed matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


def _full(numbers: Sequence[int], rank: int = 2) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


@onnx_of("max_pool2d_with_indices")
def max_pool(
    b: Builder,
    meta: Meta,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> list[Value | None]:
    """Write the maximum of each window, and its index in the plane."""
    kernel = _full(kernel)
    stride, pads, dilation = _full(stride or kernel), _full(padding), _full(dilation)
    whole = x if x.rank == 4 else b.reshape(x, (1, *x.shape))
    shape = meta.shape if x.rank == 4 else (1, *meta.shape)
    # With ceil_mode, PyTorch adds padding at the end up to the last window.
    ends = [
        max(0, (shape[2 + i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - whole.shape[2 + i] - pads[i])
        for i in range(2)
    ]
    ends = [end if ceil else pad for end, pad in zip(ends, pads, strict=True)]
    if any(end > dilation[i] * (kernel[i] - 1) for i, end in enumerate(ends)):
        raise Unsupported("a window that lies outside")
    wants = meta.results[1] is not None
    both = [(x.dtype, shape), (torch.int64, shape) if wants else None]
    more = {"kernel_shape": kernel, "strides": stride, "pads": [*pads, *ends], "dilations": dilation}
    made = b.ops("MaxPool", [whole], both, **more)
    largest = made[0]
    if x.dtype.is_floating_point:  # ONNX Runtime ignores NaN
        nans = b.op("MaxPool", [b.nans(whole, torch.float32)], torch.float32, shape, **more)
        largest = b.or_nan(largest, nans)
    values = b.reshape(largest, meta.shape)
    if not wants:
        return [values, None]
    plane = whole.shape[2] * whole.shape[3]  # ONNX counts over all planes
    places = b.op("Mod", [made[1], b.scalar(plane, torch.int64)], torch.int64, shape)
    return [values, b.reshape(places, meta.shape)]


@onnx_of("max_pool2d_with_indices_backward")
def max_pool_backward(b: Builder, meta: Meta, grad: Value, x: Value, *more: Any) -> Value:
    """Write the gradient of a max pool: added at the index of the maximum."""
    indices = more[-1]
    planes, size = x.numel // (x.shape[-1] * x.shape[-2]), x.shape[-1] * x.shape[-2]
    zeros = b.expand(Value(b.scalar(0, grad.dtype), (), grad.dtype), (planes, size))
    flat = (planes, grad.numel // planes)
    where, what = b.reshape(indices, flat), b.reshape(grad, flat)
    made = b.op("ScatterElements", [zeros, where, what], grad.dtype, (planes, size), axis=1, reduction="add")
    return b.cast(b.reshape(made, meta.shape), meta.dtype)


# ----------------------------------------------------------------------------------------------------------- averages


def _times(b: Builder, x: Value, matrices: Sequence[np.ndarray[Any, Any]]) -> Value:
    """Write the last dimensions, each multiplied by a matrix (out x in)."""
    if not x.dtype.is_floating_point:
        raise Unsupported("averages of integers")
    for place, matrix in enumerate(reversed(matrices)):
        axis = x.rank - 1 - place
        shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
        if place == 0:
            x = b.op("MatMul", [x, b.constant(matrix.T, x.dtype)], x.dtype, shape)
        elif place == 1:
            x = b.op("MatMul", [b.constant(matrix, x.dtype), x], x.dtype, shape)
        else:
            raise Unsupported("three dimensions")
    return x


def _adaptive(size: int, out: int) -> np.ndarray[Any, Any]:
    made = np.zeros((out, size))
    for i in range(out):
        start, stop = i * size // out, -(-(i + 1) * size // out)
        made[i, start:stop] = 1 / (stop - start)
    return made


@onnx_of("_adaptive_avg_pool2d")
def adaptive_average(b: Builder, meta: Meta, x: Value, out: Sequence[int]) -> Value:
    """Write averages over parts of equal size."""
    return _times(b, x, [_adaptive(size, end) for size, end in zip(x.shape[-2:], meta.shape[-2:], strict=True)])


@onnx_of("_adaptive_avg_pool2d_backward")
def adaptive_average_backward(b: Builder, meta: Meta, grad: Value, x: Value) -> Value:
    """Write the gradient of adaptive averages."""
    sizes = zip(x.shape[-2:], grad.shape[-2:], strict=True)
    return _times(b, grad, [_adaptive(size, end).T for size, end in sizes])


def _windows(size: int, out: int, kernel: int, stride: int, pad: int, counts_pad: bool, divisor: bool) -> Any:
    made = np.zeros((out, size))
    for i in range(out):
        start, stop = i * stride - pad, min(i * stride - pad + kernel, size + pad)
        inside = range(max(start, 0), min(stop, size))
        share = (stop - start) if counts_pad else len(inside)
        made[i, inside.start : inside.stop] = 1 if divisor else 1 / max(share, 1)
    return made


def _whole(arguments: Sequence[Any]) -> list[Any]:
    """Return kernel, stride, padding, ceil_mode, count_include_pad and divisor, with defaults for omitted ones."""
    defaults: list[Any] = [(), (0,), False, True, None]
    return [*arguments, *defaults[len(arguments) - 1 :]]


def _averages(x: Sequence[int], out: Sequence[int], arguments: Sequence[Any]) -> list[Any]:
    kernel, stride, padding, _, counts_pad, divisor = _whole(arguments)
    kernel = _full(kernel)
    stride, padding = _full(stride or kernel), _full(padding)
    rows = zip(x[-2:], out[-2:], kernel, stride, padding, strict=True)
    made = [_windows(*row, counts_pad, bool(divisor)) for row in rows]
    if divisor:
        made[0] = made[0] / divisor
    return made


@onnx_of("avg_pool2d")
def average(b: Builder, meta: Meta, x: Value, *arguments: Any) -> Value:
    """Write averages of windows."""
    kernel, stride, padding, ceil, counts_pad, divisor = _whole(arguments)
    if ceil or divisor or x.rank != 4 or not x.dtype.is_floating_point:
        return _times(b, x, _averages(x.shape, meta.shape, arguments))
    kernel = _full(kernel)
    more = {"kernel_shape": kernel, "strides": _full(stride or kernel), "pads": _full(padding) * 2}
    return b.op("AveragePool", [x], meta.dtype, meta.shape, count_include_pad=int(counts_pad), **more)


@onnx_of("avg_pool2d_backward")
def average_backward(b: Builder, meta: Meta, grad: Value, x: Value, *arguments: Any) -> Value:
    """Write the gradient of averages."""
    return _times(b, grad, [matrix.T for matrix in _averages(x.shape, grad.shape, arguments)])


# ------------------------------------------------------------------------------------------------------ interpolation


def _linear(size: int, out: int, corners: bool, scale: float | None) -> np.ndarray[Any, Any]:
    made = np.zeros((out, size))
    for i in range(out):
        if corners:
            place = i * (size - 1) / (out - 1) if out > 1 else 0.0
        else:
            place = max((i + 0.5) * (1 / scale if scale else size / out) - 0.5, 0.0)
        low = min(int(place), size - 1)
        share = place - low if low < size - 1 else 0.0
        made[i, low] += 1 - share
        made[i, min(low + 1, size - 1)] += share
    return made


def _nearest(size: int, out: int, scale: float | None) -> np.ndarray[Any, Any]:
    made = np.zeros((out, size))
    for i in range(out):
        made[i, min(int(i * (np.float32(1 / scale) if scale else np.float32(size / out))), size - 1)] = 1
    return made


@onnx_of("upsample_bilinear2d")
def bilinear(
    b: Builder, meta: Meta, x: Value, out: Any, corners: bool, high: float | None = None, wide: float | None = None
) -> Value:
    """Write an image resized by bilinear interpolation."""
    rows = zip(x.shape[-2:], meta.shape[-2:], (high, wide), strict=True)
    return _times(b, x, [_linear(size, end, corners, scale) for size, end, scale in rows])


@onnx_of("upsample_bilinear2d_backward")
def bilinear_backward(
    b: Builder,
    meta: Meta,
    grad: Value,
    out: Any,
    sizes: Sequence[int],
    corners: bool,
    high: float | None = None,
    wide: float | None = None,
) -> Value:
    """Write the gradient of bilinear interpolation."""
    rows = zip(sizes[-2:], grad.shape[-2:], (high, wide), strict=True)
    return _times(b, grad, [_linear(size, end, corners, scale).T for size, end, scale in rows])


@onnx_of("upsample_nearest2d")
def nearest(b: Builder, meta: Meta, x: Value, out: Any, high: float | None = None, wide: float | None = None) -> Value:
    """Write an image resized by nearest-neighbour interpolation."""
    rows = zip(x.shape[-2:], meta.shape[-2:], (high, wide), strict=True)
    return _times(b, x, [_nearest(size, end, scale) for size, end, scale in rows])


@onnx_of("upsample_nearest2d_backward")
def nearest_backward(
    b: Builder,
    meta: Meta,
    grad: Value,
    out: Any,
    sizes: Sequence[int],
    high: float | None = None,
    wide: float | None = None,
) -> Value:
    """Write the gradient of nearest-neighbour interpolation."""
    rows = zip(sizes[-2:], grad.shape[-2:], (high, wide), strict=True)
    return _times(b, grad, [_nearest(size, end, scale).T for size, end, scale in rows])
