"""The operator ``zoo::gate`` in Python: x * silu(g), with a separate kernel for the device ``sdaa``, and a backward.

Importing this module defines it; it is then ``torch.ops.zoo.gate``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("zoo::gate", mutates_args=(), device_types="cpu")
def gate(x: Tensor, g: Tensor) -> Tensor:
    """Return x * g * sigmoid(g) for inputs of the same shape. This is the CPU kernel."""
    return x * (g * torch.sigmoid(g))


@gate.register_kernel("sdaa")
def _on_sdaa(x: Tensor, g: Tensor) -> Tensor:
    """Compute the same with two buffers instead of three; each line is one launch on the card."""
    made = torch.sigmoid(g)
    made.mul_(g)
    return made.mul_(x)


@gate.register_fake
def _shapes(x: Tensor, g: Tensor) -> Tensor:
    """Return the output's shape and dtype without computing it, for torch.compile and the ONNX exporter."""
    torch._check(x.shape == g.shape, lambda: f"x and g must have one shape, not {tuple(x.shape)} and {tuple(g.shape)}")
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and g."""
    x, g = ctx.saved_tensors
    s = torch.sigmoid(g)
    silu = g * s
    return grad * silu, grad * x * (s + silu * (1 - s))


gate.register_autograd(_backward, setup_context=_keep)
