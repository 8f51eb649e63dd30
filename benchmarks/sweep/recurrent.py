"""Recurrent networks, with the batch first and with the time first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sweep.row import BATCH, Axes, Inputs, Row, floats, on_axis, several

STEPS, WIDTH, HIDDEN = 9, 12, 16


class Recurrent(nn.Module):
    """A recurrent layer stack and a score for every step."""

    def __init__(self, kind: type[nn.Module], batch_first: bool, layers: int = 1, both: bool = False) -> None:
        super().__init__()
        self.core = kind(WIDTH, HIDDEN, layers, batch_first=batch_first, bidirectional=both)
        self.head = nn.Linear(HIDDEN * (2 if both else 1), 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return self.head(self.core(x)[0])


class Last(Recurrent):
    """The same, with the output of the last step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the last step: (batch, 5) in either layout."""
        found = self.core(x)[0]
        return self.head(found[:, -1] if self.core.batch_first else found[-1])


class Stateful(nn.Module):
    """An LSTM with its state as input and output: (layers, batch, hidden)."""

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.LSTM(WIDTH, HIDDEN, 2, batch_first=True)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return outputs and the new state."""
        y, (h, c) = self.core(x, (h, c))
        return y, h, c


class Crnn(nn.Module):
    """A reader of lines of text (Shi et al., 2015): convolutions, then a bidirectional LSTM over the columns."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(1, 16), (16, 32), (32, 32)]
        self.features = nn.Sequential(*(part for a, b in sizes for part in (
            nn.Conv2d(a, b, 3, (2, 1), 1), nn.BatchNorm2d(b), nn.ReLU())))  # fmt: skip
        self.core = nn.LSTM(128, HIDDEN, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return log probabilities with the time first: (columns, batch, 20)."""
        found = self.features(x).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.core(found)[0]).log_softmax(-1)


class Attending(nn.Module):
    """A GRU encoder and three decoding steps that attend to it."""

    def __init__(self) -> None:
        super().__init__()
        self.core, self.cell = nn.GRU(WIDTH, HIDDEN, batch_first=True), nn.GRUCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of three steps: (batch, 3, 7)."""
        memory, last = self.core(x)
        state, found = last[0], []
        for _ in range(3):
            weights = (memory @ state[:, :, None]).softmax(1)
            state = self.cell((weights * memory).sum(1), state)
            found.append(self.head(state))
        return torch.stack(found, 1)


def _made(kind: str, batch_first: bool, make: type[Recurrent] = Recurrent, **options: Any) -> Callable[[], nn.Module]:
    return lambda: make(getattr(nn, kind), batch_first, **options)


FIRST: Inputs = floats(STEPS, WIDTH)
TIMED: Inputs = on_axis(1, FIRST)
TIME_AXES: Axes = {"x": {1: BATCH}}
SECOND = on_axis(1, floats(2, HIDDEN))

ROWS = (
    Row("rnn (batch first)", _made("RNN", True), FIRST),
    Row("rnn (time first)", _made("RNN", False), TIMED, axes=TIME_AXES),
    Row("lstm (batch first)", _made("LSTM", True, layers=2), FIRST),
    Row("lstm (time first)", _made("LSTM", False, layers=2), TIMED, axes=TIME_AXES),
    Row("lstm (time first, dynamic)", _made("LSTM", False, Last), TIMED, axes={"x": {0: "steps", 1: BATCH}},
        refusals={"dynamo/export": "tracing inferred a static shape of 19 for dimension inputs"}),
    Row("gru (batch first)", _made("GRU", True), FIRST),
    Row("gru (time first)", _made("GRU", False), TIMED, axes=TIME_AXES),
    Row("bilstm (batch first)", _made("LSTM", True, both=True), FIRST),
    Row("bigru (time first)", _made("GRU", False, Last, both=True), TIMED, axes=TIME_AXES),
    Row("lstm with its state", Stateful, several(FIRST, SECOND, SECOND), ("x", "h", "c"), ("y", "h_out", "c_out"),
        {"x": {0: BATCH}, "h": {1: BATCH}, "c": {1: BATCH}},
        refusals={"*/cpu int8": "it has no Conv, ConvTranspose, Gemm or MatMul with constant weights"}),
    Row("crnn", Crnn, floats(1, 32, 40)),
    Row("gru with attention", Attending, FIRST),
)  # fmt: skip
