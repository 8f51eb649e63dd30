"""Recurrent networks in the CPU's order of operations.

For devices other than the CPU, PyTorch computes recurrent layers by fused cells, one step at a time; on the CPU it
multiplies a whole sequence by the input weights at once, or calls oneDNN. The order of the sums differs, and so do the
last bits. Here each layer is computed as on the CPU, by kernels of the device, which autograd, ``torch.func`` and
tracing see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import linear

Hidden: TypeAlias = tuple[Tensor, ...]
"""State of a layer, each batch x hidden: the output, then the cell state if there is one."""


class Weights(NamedTuple):
    """Weights of one direction of a layer; ``w_hr`` projects the output of an LSTM with projections."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None


Cell: TypeAlias = Callable[[Tensor, Hidden, Weights], Hidden]
"""A step: takes input times weights (batch x gates), the previous state, and the weights; returns the next state."""

Layer: TypeAlias = Callable[[Tensor, Hidden, Weights, bool], tuple[Tensor, Hidden]]
"""A direction of a layer: takes input, first state, weights, and whether it runs backwards; returns output and last
state.
"""


def _simple(nonlinearity: Callable[[Tensor], Tensor]) -> Cell:
    def step(given: Tensor, hidden: Hidden, weights: Weights) -> Hidden:
        return (nonlinearity(linear(hidden[0], weights.w_hh, weights.b_hh).add_(given)),)

    return step


def _lstm(given: Tensor, hidden: Hidden, weights: Weights) -> Hidden:
    gates = linear(hidden[0], weights.w_hh, weights.b_hh).add_(given)
    i, f, c, o = torch.unsafe_chunk(gates, 4, 1)
    i, f, c, o = i.sigmoid_(), f.sigmoid_(), c.tanh_(), o.sigmoid_()
    cell = (f * hidden[1]).add_(i * c)
    out = o * cell.tanh()
    return (out if weights.w_hr is None else torch.matmul(out, weights.w_hr.t())), cell


def _gru(given: Tensor, hidden: Hidden, weights: Weights) -> Hidden:
    ir, iz, i_n = torch.unsafe_chunk(given, 3, 1)
    hr, hz, hn = torch.unsafe_chunk(linear(hidden[0], weights.w_hh, weights.b_hh), 3, 1)
    r, z = hr.add_(ir).sigmoid_(), hz.add_(iz).sigmoid_()
    n = i_n.add(hn.mul_(r)).tanh_()
    return ((hidden[0] - n).mul_(z).add_(n),)


CELLS: dict[str, Cell] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _simple(torch.tanh), "rnn_relu": _simple(torch.relu)}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _whole(cell: Cell) -> Layer:
    """Return a layer over sequences of equal length: input and output are steps x batch x features."""

    def layer(x: Tensor, hidden: Hidden, weights: Weights, backwards: bool) -> tuple[Tensor, Hidden]:
        if x.size(0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        steps: Iterable[Tensor] = linear(x, weights.w_ih, weights.b_ih).unbind(0)
        outputs = []
        for step in reversed(tuple(steps)) if backwards else steps:
            hidden = cell(step, hidden, weights)
            outputs.append(hidden[0])
        return torch.stack(outputs[::-1] if backwards else outputs, 0), hidden

    return layer


def _packed(cell: Cell, sizes: Sequence[int]) -> Layer:
    """Return a layer over a packed sequence with these batch sizes per step, in descending order."""

    def forwards(given: Tensor, hidden: Hidden, weights: Weights) -> tuple[list[Tensor], Hidden]:
        outputs, ended, start, last = [], [], 0, sizes[0]
        for size in sizes:
            if size < last:  # finished sequences keep their last state
                ended.append(tuple(h.narrow(0, size, last - size) for h in hidden))
                hidden = tuple(h.narrow(0, 0, size) for h in hidden)
            hidden = cell(given.narrow(0, start, size), hidden, weights)
            outputs.append(hidden[0])
            start, last = start + size, size
        ended.append(hidden)
        return outputs, tuple(torch.cat(parts, 0) for parts in zip(*reversed(ended), strict=True))

    def backwards(given: Tensor, first: Hidden, weights: Weights) -> tuple[list[Tensor], Hidden]:
        outputs, end, last = [], given.size(0), sizes[-1]
        hidden = tuple(h.narrow(0, 0, last) for h in first)
        for size in reversed(sizes):
            if size > last:  # new sequences start with their own state
                hidden = tuple(
                    torch.cat([h, f.narrow(0, last, size - last)], 0) for h, f in zip(hidden, first, strict=True)
                )
            hidden = cell(given.narrow(0, end - size, size), hidden, weights)
            outputs.append(hidden[0])
            end, last = end - size, size
        return outputs[::-1], hidden

    def layer(x: Tensor, hidden: Hidden, weights: Weights, back: bool) -> tuple[Tensor, Hidden]:
        given = linear(x, weights.w_ih, weights.b_ih)
        outputs, last = (backwards if back else forwards)(given, hidden, weights)
        return torch.cat(outputs, 0), last

    return layer


LOWERED = (torch.float32, torch.float16, torch.bfloat16)
"""Types that autocast replaces by its own."""


def lowered(*values: Tensor) -> tuple[Tensor, ...]:
    """Return tensors in autocast's dtype if it is enabled, like CUDA's recurrent kernels."""
    if not torch.is_autocast_enabled("sdaa"):
        return values
    dtype = torch.get_autocast_dtype("sdaa")
    return tuple(value.to(dtype) if value.dtype in LOWERED else value for value in values)


def _gathered(params: Sequence[Tensor], has_biases: bool, projected: bool) -> list[Weights]:
    each = 2 + 2 * has_biases + projected
    if len(params) % each:
        raise RuntimeError("got an incorrect number of RNN parameters")
    out = []
    for start in range(0, len(params), each):
        own: list[Tensor | None] = list(params[start : start + each])
        w_hr = own.pop() if projected else None
        b_ih, b_hh = own[2:] if has_biases else (None, None)
        out.append(Weights(params[start], params[start + 1], b_ih, b_hh, w_hr))
    return out


def _layers(
    layer: Layer,
    x: Tensor,
    hidden: Sequence[Hidden],
    weights: Sequence[Weights],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, list[Hidden]]:
    """Run all layers; return the output of the last, and the last state of each direction of each layer."""
    ways = 2 if bidirectional else 1
    if not num_layers * ways == len(hidden) == len(weights):
        raise RuntimeError(
            f"a recurrent network of {num_layers} layers and {ways} directions takes {num_layers * ways} states and "
            f"sets of weights, not {len(hidden)} and {len(weights)}"
        )
    ends = []
    for number in range(num_layers):
        outputs = []
        for way in range(ways):
            out, end = layer(x, hidden[number * ways + way], weights[number * ways + way], way > 0)
            outputs.append(out)
            ends.append(end)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout != 0 and train and number < num_layers - 1:
            x = torch.dropout(x, dropout, train=True)
    return x, ends


def run(
    name: str,
    layer: Layer,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Run a network on ``x``, steps x batch x features or packed; return the output and the last states."""
    projected = name == "lstm" and states[0].size(2) != states[1].size(2)
    hidden = list(zip(*(state.unbind(0) for state in states), strict=True))
    weights = _gathered(params, has_biases, projected)
    out, ends = _layers(layer, x, hidden, weights, num_layers, dropout, train, bidirectional)
    return out, *(torch.stack(parts, 0) for parts in zip(*ends, strict=True))


def whole(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return ``aten::<name>.input``: the network over sequences of equal length."""

    def kernel(
        x: Tensor, hx: Tensor | list[Tensor], params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        states = lowered(*([hx] if isinstance(hx, Tensor) else hx))
        given, params = lowered(x.transpose(0, 1) if batch_first else x)[0], list(lowered(*params))
        layer = _whole(CELLS[name])
        out, *ends = run(name, layer, given, states, params, has_biases, num_layers, dropout, train, bidirectional)
        return (out.transpose(0, 1) if batch_first else out), *ends

    return kernel


def packed(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return ``aten::<name>.data``: the network over a packed sequence, with batch sizes on the CPU."""

    def kernel(
        data: Tensor, batch_sizes: Tensor, hx: Tensor | list[Tensor], params: list[Tensor], has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        layer = _packed(CELLS[name], batch_sizes.tolist())
        states = lowered(*([hx] if isinstance(hx, Tensor) else hx))
        data, params = lowered(data)[0], list(lowered(*params))
        return run(name, layer, data, states, params, has_biases, num_layers, dropout, train, bidirectional)

    return kernel


def step(name: str) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    """Return ``aten::<name>_cell``: one step."""

    def kernel(
        x: Tensor, hx: Tensor | list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        _check_step(x, states, w_ih, w_hh, GATES[name])
        end = CELLS[name](linear(x, w_ih, b_ih), states, Weights(w_ih, w_hh, b_ih, b_hh))
        return end if name == "lstm" else end[0]

    return kernel


def _check_step(x: Tensor, states: Hidden, w_ih: Tensor, w_hh: Tensor, gates: int) -> None:
    if x.size(1) != w_ih.size(1):
        raise RuntimeError(f"input has inconsistent input_size: got {x.size(1)} expected {w_ih.size(1)}")
    hidden = w_hh.size(1)
    for state in states:
        if state.size(0) != x.size(0):
            raise RuntimeError(f"Input batch size {x.size(0)} doesn't match hidden batch size {state.size(0)}")
        if state.size(1) != hidden:
            raise RuntimeError(f"hidden has inconsistent hidden_size: got {state.size(1)}, expected {hidden}")
    for what, weights in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if weights.size(0) != gates * hidden:
            raise RuntimeError(
                f"{what} first dim must be {gates} * hidden_size = {gates * hidden}, but got {weights.size(0)}"
            )


def register(library: torch.library.Library) -> None:
    """Register all operators but ``lstm.input``, which ``one_dnn.py`` registers; autograd records their parts."""
    for name in CELLS:
        kernels = {f"{name}.data": packed(name), f"{name}_cell": step(name)}
        if name != "lstm":
            kernels[f"{name}.input"] = whole(name)
        for overload, kernel in kernels.items():
            for key in ("PrivateUse1", "AutogradPrivateUse1"):
                library.impl(overload, kernel, key)
