"""``aten::lstm.input``: oneDNN's layers where the CPU calls them, each one launch, else cells step by step.

``torch.compile`` leaves oneDNN's layers uncompiled. It does not compile recurrent modules either, but would compile the
kernels in Python that they call, and an LSTM would take many launches for each step. Kernels that have only steps,
such as those of a GRU, gain from that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext

from torch_sdaa.operators import recurrent

ONE_DNN_LSTM = 2  # mode of mkldnn_rnn_layer


def _layer(layers: int, has_biases: bool, train: bool, bidirectional: bool, batch_first: bool) -> recurrent.Layer:
    """Return the layer that calls oneDNN, like the CPU."""

    def layer(
        x: Tensor, hidden: recurrent.Hidden, weights: recurrent.Weights, backwards: bool
    ) -> tuple[Tensor, recurrent.Hidden]:
        h, c = hidden
        biases = (
            (weights.b_ih, weights.b_hh)
            if has_biases
            else (torch.zeros_like(weights.w_ih), torch.zeros_like(weights.w_hh))
        )
        values = recurrent.lowered(x, weights.w_ih, weights.w_hh, *biases, h, c)
        y, hy, cy, _ = torch.mkldnn_rnn_layer(
            *values, backwards, [], ONE_DNN_LSTM, h.size(1), layers, has_biases, bidirectional, batch_first, train
        )
        return y, (hy, cy)

    return layer


def compute(
    x: Tensor, hx: list[Tensor], params: list[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Compute ``aten::lstm.input`` by oneDNN; the arguments are those of the operator."""
    layer = _layer(num_layers, has_biases, train, bidirectional, batch_first)
    given, states = (x.transpose(0, 1) if batch_first else x).contiguous(), [state.contiguous() for state in hx]
    out, *ends = recurrent.run(
        "lstm", layer, given, states, params, has_biases, num_layers, dropout, train, bidirectional
    )
    return (out.transpose(0, 1) if batch_first else out), *ends


def _suits(x: Tensor) -> bool:
    """Return whether the CPU calls oneDNN for an LSTM without projections on such an input.

    Not under ``torch.compile``: steps of cells can be compiled, while oneDNN's layer saves values that PyTorch cannot
    trace.
    """
    if torch.compiler.is_compiling() or TracingContext.try_get() is not None:
        return False
    if not torch.backends.mkldnn.is_available() or not torch._C._get_mkldnn_enabled() or x.numel() == 0:
        return False
    dtype = x.dtype
    if torch.is_autocast_enabled("sdaa") and dtype in recurrent.LOWERED:
        dtype = torch.get_autocast_dtype("sdaa")
        if dtype is torch.float16:
            return False  # unsupported by oneDNN on the CPU too; autocast casts the operators of a cell
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype is torch.float16:
        return not torch.is_grad_enabled() and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return dtype is torch.float32


def leave_uncompiled() -> None:
    """Let ``torch.compile`` compile neither this file nor what :func:`compute` calls."""
    from torch._dynamo import trace_rules

    global compute
    trace_rules.add(__name__)
    compute = torch.compiler.disable(compute)


def register(library: torch.library.Library) -> None:
    """Register the operator; autograd records its parts."""
    steps = recurrent.whole("lstm")

    def kernel(x: Tensor, hx: list[Tensor], *args: Any) -> tuple[Tensor, ...]:
        projected = hx[0].size(2) != hx[1].size(2)
        return (steps if projected or not _suits(x) else compute)(x, hx, *args)

    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library.impl("lstm.input", kernel, key)
