"""Softmax and layer norm; other norms are decomposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


@onnx_of("_softmax")
def softmax(b: Builder, meta: Meta, x: Value, dim: int, half_to_float: bool) -> Value:
    """Write a softmax."""
    if not x.rank:
        raise Unsupported("a softmax of a scalar")
    return b.op("Softmax", [b.cast(x, meta.dtype)], meta.dtype, meta.shape, axis=dim % x.rank)


@onnx_of("_log_softmax")
def log_softmax(b: Builder, meta: Meta, x: Value, dim: int, half_to_float: bool) -> Value:
    """Write the logarithm of a softmax."""
    if not x.rank:
        raise Unsupported("a softmax of a scalar")
    return b.op("LogSoftmax", [b.cast(x, meta.dtype)], meta.dtype, meta.shape, axis=dim % x.rank)


@onnx_of("_softmax_backward_data")
def softmax_backward(b: Builder, meta: Meta, grad: Value, out: Value, dim: int, dtype: torch.dtype) -> Value:
    """Write a softmax's gradient: ``out * (grad - sum(grad * out))``."""
    both = b.op("Mul", [grad, out], grad.dtype, grad.shape)
    total = b.reduce("ReduceSum", both, [dim], keep=True)
    left = b.op("Sub", [grad, total], grad.dtype, grad.shape)
    return b.cast(b.op("Mul", [left, out], grad.dtype, grad.shape), meta.dtype)


@onnx_of("_log_softmax_backward_data")
def log_softmax_backward(b: Builder, meta: Meta, grad: Value, out: Value, dim: int, dtype: torch.dtype) -> Value:
    """Write the gradient of log softmax: ``grad - exp(out) * sum(grad)``."""
    total = b.reduce("ReduceSum", grad, [dim], keep=True)
    share = b.op("Exp", [out], out.dtype, out.shape)
    part = b.op("Mul", [share, total], grad.dtype, grad.shape)
    return b.cast(b.op("Sub", [grad, part], grad.dtype, grad.shape), meta.dtype)


@onnx_of("native_layer_norm")
def layer_norm(
    b: Builder, meta: Meta, x: Value, sizes: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Write a layer norm with mean and inverse standard deviation."""
    axis = x.rank - len(sizes)
    if x.dtype is not torch.float32:
        raise Unsupported("a layer norm of a dtype other than float32")
    if weight is None:
        weight = Value(b.constant(np.ones(tuple(sizes)), x.dtype), tuple(sizes), x.dtype)
    few = (x.dtype, (*x.shape[:axis], *(1 for _ in sizes)))
    given = [x, weight] if bias is None else [x, weight, bias]
    made = b.ops("LayerNormalization", given, [(x.dtype, x.shape), few, few], axis=axis, epsilon=float(eps))
    return [b.cast(made[0], meta.dtype), *made[1:]]
