"""Batch norm, forward and backward, in few kernels: ONNX's operator also returns mean and variance of the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import NARROW, Builder, Unsupported, Value


def _row(b: Builder, number: float, like: Value) -> Value:
    return Value(b.constant([number] * like.shape[0], like.dtype), like.shape, like.dtype)


def _channels(b: Builder, x: Value, given: Value | None, number: float) -> Value:
    """Return a parameter of each channel, or a constant for all."""
    if given is not None:
        return given
    return Value(b.constant([number] * x.shape[1], torch.float32), (x.shape[1],), torch.float32)


def _check(x: Value, *parameters: Value | None) -> None:
    figures = [p.dtype for p in parameters if p is not None]
    if x.dtype is not torch.float32 or any(dtype is not torch.float32 for dtype in figures):
        raise Unsupported("a batch norm of a dtype other than float32")
    if x.rank < 2:
        raise Unsupported("a batch norm without channels")


def _moved(b: Builder, running: Value, seen: Value, momentum: float, factor: float) -> Value:
    """Write an updated running statistic: ``(1 - momentum) * running + momentum * factor * seen``."""
    column = (*seen.shape, 1)
    one = b.constant([[1.0]], seen.dtype)
    both: list[str | Value] = [b.reshape(seen, column), one, b.reshape(running, column)]
    made = b.op("Gemm", both, seen.dtype, column, alpha=float(momentum * factor), beta=float(1 - momentum))
    return b.reshape(made, seen.shape)


def _trained(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Write a batch norm in training: result, mean, variance, and inverse standard deviation."""
    scale, shift = _channels(b, x, weight, 1.0), _channels(b, x, bias, 0.0)
    row = (x.dtype, scale.shape)
    # With momentum 0, the outputs are the statistics of this batch. ONNX Runtime writes them over the inputs, so that
    # batch norms must not share constants: each value is used once.
    given = [x, scale, shift, *(_row(b, len(b.nodes) + half, scale) for half in (1.0, 1.5))]
    more = {"epsilon": float(eps), "momentum": 0.0, "training_mode": 1}
    out, mean, variance = b.ops("BatchNormalization", given, [(x.dtype, x.shape), row, row], **more)
    return out, mean, variance, _inverse(b, variance, eps)


def _of_stored(
    b: Builder,
    meta: Meta,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    made: Sequence[Value],
) -> list[Value]:
    """Return result, mean and inverse; if the device stores the statistics in a narrow dtype, from the stored ones."""
    out, mean, inverse = made
    stored = [meta.stored(b, each, *NARROW) for each in (mean, inverse)]
    if stored[0] is mean:
        return [out, mean, inverse]
    factor = stored[1]
    if weight is not None:
        factor = b.op("Mul", [factor, weight], factor.dtype, factor.shape)
    shift = b.op("Mul", [stored[0], factor], factor.dtype, factor.shape)
    shift = b.op("Sub", [_channels(b, x, bias, 0.0), shift], factor.dtype, factor.shape)
    spread = (1, x.shape[1], *(1 for _ in range(x.rank - 2)))
    scaled = b.op("Mul", [b.cast(x, out.dtype), b.reshape(factor, spread)], out.dtype, out.shape)
    return [b.op("Add", [scaled, b.reshape(shift, spread)], out.dtype, out.shape), *stored]


def _inverse(b: Builder, variance: Value, eps: float) -> Value:
    raised = b.op("Add", [variance, b.scalar(eps, variance.dtype)], variance.dtype, variance.shape)
    root = b.op("Sqrt", [raised], variance.dtype, variance.shape)
    return b.op("Reciprocal", [root], variance.dtype, variance.shape)


def _count(x: Value) -> int:
    return x.numel // x.shape[1]


@onnx_of("_native_batch_norm_legit_functional")
def batch_norm(
    b: Builder,
    meta: Meta,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Write a batch norm: result, mean, inverse standard deviation, and the new running statistics."""
    _check(x, weight, bias, running_mean, running_var)
    if not training:
        made = without_training(b, meta, x, weight, bias, running_mean, running_var, momentum, eps)
        return [*made, running_mean, running_var]
    out, mean, variance, inverse = _trained(b, b.cast(x, torch.float32), weight, bias, eps)
    count = _count(x)
    means = _moved(b, running_mean, mean, momentum, 1.0)
    variances = _moved(b, running_var, variance, momentum, count / max(count - 1, 1))
    out, mean, inverse = _of_stored(b, meta, x, weight, bias, (out, mean, inverse))
    return [b.cast(out, x.dtype), mean, inverse, means, variances]


@onnx_of("_native_batch_norm_legit.no_stats")
def batch_norm_alone(
    b: Builder,
    meta: Meta,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Write a batch norm without running statistics."""
    _check(x, weight, bias)
    out, mean, _, inverse = _trained(b, b.cast(x, torch.float32), weight, bias, eps)
    out, mean, inverse = _of_stored(b, meta, x, weight, bias, (out, mean, inverse))
    return [b.cast(out, x.dtype), mean, inverse]


@onnx_of("_native_batch_norm_legit_no_training")
def without_training(
    b: Builder,
    meta: Meta,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Write a batch norm with running statistics: result, mean, and inverse standard deviation."""
    _check(x, weight, bias, running_mean, running_var)
    wide = b.cast(x, torch.float32)
    given = [wide, _channels(b, x, weight, 1.0), _channels(b, x, bias, 0.0), running_mean, running_var]
    out = b.op("BatchNormalization", given, wide.dtype, x.shape, epsilon=float(eps))
    return [b.cast(out, x.dtype), running_mean, _inverse(b, running_var, eps)]


@onnx_of("native_batch_norm_backward")
def batch_norm_backward(
    b: Builder,
    meta: Meta,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    mean: Value | None,
    inverse: Value | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> list[Value | None]:
    """Write the gradients of a batch norm's input, weight and bias."""
    _check(x, weight)
    narrow = meta.dtype if meta.results[0] else x.dtype
    x, grad = b.cast(x, torch.float32), b.cast(grad, torch.float32)
    if not training:
        if running_mean is None or running_var is None:
            raise Unsupported("a batch norm without statistics")
        mean = running_mean
        inverse = _inverse(b, running_var, eps)
    if mean is None or inverse is None:
        raise Unsupported("a batch norm without statistics")
    spread = (1, x.shape[1], *(1 for _ in range(x.rank - 2)))
    axes = [0, *range(2, x.rank)]

    def wide(value: Value) -> Value:
        return b.reshape(value, spread)

    def times(left: Any, right: Any) -> Value:
        return b.op("Mul", [left, right], x.dtype, left.shape)

    of_bias = b.reduce("ReduceSum", grad, axes, keep=False)
    apart = b.op("Sub", [x, wide(mean)], x.dtype, x.shape)
    of_weight = times(b.reduce("ReduceSum", times(grad, apart), axes, keep=False), inverse)
    factor = inverse if weight is None else times(inverse, weight)
    if not training:
        return [b.cast(times(grad, wide(factor)), narrow), of_weight, of_bias]
    share = b.scalar(1 / _count(x), x.dtype)
    # The part due to the batch's mean and variance is a scale and a shift: one kernel as a batch norm. It is applied to
    # the distance from the mean, because ONNX Runtime subtracts the mean last, which would lose digits.
    scale, shift = times(times(of_weight, share), inverse), times(of_bias, share)
    given = [apart, scale, shift, _row(b, 0.0, inverse), _row(b, 1.0, inverse)]
    taken = b.op("BatchNormalization", given, x.dtype, x.shape, epsilon=0.0)
    left = b.op("Sub", [grad, taken], x.dtype, x.shape)
    return [b.cast(times(left, wide(factor)), narrow), of_weight, of_bias]
