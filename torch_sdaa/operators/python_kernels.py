"""Kernels written in Python: fused cells of recurrent networks, and fallthroughs."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_sdaa.operators import one_dnn, recurrent

_library: torch.library.Library | None = None


def register() -> None:
    """Register the kernels for the life of the process."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    kernels = {
        "_thnn_fused_lstm_cell": lstm_cell,
        "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
        "_thnn_fused_gru_cell": gru_cell,
        "_thnn_fused_gru_cell_backward": gru_cell_backward,
        "record_stream": _record_stream,
    }
    for name, kernel in kernels.items():
        _library.impl(name, kernel, "PrivateUse1")
    recurrent.register(_library)
    one_dnn.register(_library)
    for key in ("Conjugate", "Negative", "ZeroTensor"):  # their fallbacks would copy, which recurses endlessly
        _library.impl("_copy_from", torch.library.fallthrough_kernel, key)


def _record_stream(tensor: Tensor, stream: torch.Stream) -> None:
    """Do nothing: memory is freed with its last reference, regardless of streams."""


def lstm_cell(
    igates: Tensor, hgates: Tensor, cx: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hidden state, the cell state and the gates (batch x 4 hidden), in the order of ``nn.LSTMCell``."""
    gates = igates + hgates
    if b_ih is not None and b_hh is not None:
        gates = gates + b_ih + b_hh
    i, f, c, o = gates.chunk(4, 1)
    i, f, c, o = i.sigmoid(), f.sigmoid(), c.tanh(), o.sigmoid()
    cy = f * cx + i * c
    return o * cy.tanh(), cy, torch.cat([i, f, c, o], 1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the gates (batch x 4 hidden), of the cell state, and of a bias (4 hidden)."""
    i, f, c, o = workspace.chunk(4, 1)
    t = cy.tanh()
    gh = torch.zeros_like(cy) if grad_hy is None else grad_hy
    gc = gh * o * (1 - t * t)
    if grad_cy is not None:
        gc = gc + grad_cy
    gates = torch.cat([gc * c * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - c * c), gh * t * o * (1 - o)], 1)
    return gates, gc * f, gates.sum(0) if has_bias else None


def gru_cell(
    igates: Tensor, hgates: Tensor, hx: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the hidden state and what backward needs (batch x 5 hidden), in the order of ``nn.GRUCell``."""
    if b_ih is not None and b_hh is not None:
        igates, hgates = igates + b_ih, hgates + b_hh
    ir, ii, i_n = igates.chunk(3, 1)
    hr, hi, hn = hgates.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    n = (i_n + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of both gates (batch x 3 hidden), of the hidden state, and of both biases (3 hidden)."""
    r, z, n, hx, hn = workspace.chunk(5, 1)
    gz, gn = grad_hy * (hx - n) * z * (1 - z), grad_hy * (1 - z) * (1 - n * n)
    gr = gn * hn * r * (1 - r)
    gi, gh = torch.cat([gr, gz, gn], 1), torch.cat([gr, gz, gn * r], 1)
    return gi, gh, grad_hy * z, gi.sum(0) if has_bias else None, gh.sum(0) if has_bias else None
