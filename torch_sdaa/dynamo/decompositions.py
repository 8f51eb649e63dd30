"""Operators to decompose before a graph is partitioned: those of PyTorch's core set without an ONNX form here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from torch_sdaa.dynamo.aten import TABLE

_aten = torch.ops.aten

_MORE = (
    "native_batch_norm_backward",
    "_native_batch_norm_legit_functional",
    "_batch_norm_with_update_functional",
    "batch_norm_backward",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "gelu_backward",
    "elu_backward",
    "hardtanh_backward",
    "hardswish_backward",
    "hardsigmoid_backward",
    "leaky_relu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "softplus_backward",
    "native_dropout_backward",
    "grid_sampler_2d",
    "mish_backward",
    "_to_copy_backward",
)
"""Operators that PyTorch's core set does not decompose."""


def _native_dropout(x: Any, p: float, train: bool | None) -> Any:
    """Decompose dropout like the CPU: a mask, drawn by the device, times the input."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = _aten.bernoulli.p(torch.empty_like(x, dtype=torch.bool), 1 - p)
    kept = mask.to(x.dtype)
    return x * (kept if p == 1 else kept / (1 - p)), mask


def _weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """Decompose the gradient of ``v * g / norm(v)``, with the norm over all dimensions but one."""
    others = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    total = (grad * v).sum(others, keepdim=True)
    return (g / norms) * (grad - v * (total / (norms * norms))), total / norms


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return operator -> decomposition."""
    table = dict(core_aten_decompositions())
    more = [getattr(_aten, name) for name in _MORE if hasattr(_aten, name)]
    table.update(get_decompositions(more))
    for op in list(table):
        random = isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags
        if op in TABLE or random:  # random numbers are drawn by the device, as outside graphs
            del table[op]
    table[_aten.native_dropout.default] = _native_dropout
    table[_aten._weight_norm_interface_backward.default] = _weight_norm_backward
    return table
