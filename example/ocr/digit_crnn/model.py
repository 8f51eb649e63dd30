"""The network of the digit reader: a CRNN of 330 thousand parameters for lines of digits, 32 pixels high."""

from __future__ import annotations

import torch
from torch import nn

DIGITS = 10
WIDTHS = (24, 48, 64, 96)
"""Channels after the four steps that halve the height: 16, 8, 4 and 2 rows. The first two halve the width too."""

MEMORY = 64
"""Hidden size of the LSTM in each direction."""


def conv(inputs: int, outputs: int, stride: tuple[int, int] = (1, 1)) -> nn.Sequential:
    """Return a 3 x 3 convolution that keeps the image's size (divided by the stride), its batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels), conv(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x channels x H x W to the same."""
        return x + self.body(x)


class DigitCRNN(nn.Module):
    """N x 1 x 32 x W preprocessed lines in, N x W/4 x 11 probabilities out: blank, 0 to 9; W is a multiple of 4.

    Convolutions extract features, which a bidirectional LSTM reads along the line (Shi et al., 2015).
    """

    def __init__(self) -> None:
        super().__init__()
        first, second, third, fourth = WIDTHS
        self.seen = nn.Sequential(
            conv(1, first, (2, 2)),
            conv(first, second, (2, 2)),
            conv(second, third, (2, 1)),
            Residual(third),
            conv(third, fourth, (2, 1)),
        )
        self.column = nn.Sequential(nn.Conv2d(fourth, fourth, (2, 1), bias=False), nn.BatchNorm2d(fourth), nn.ReLU())
        self.along = nn.LSTM(fourth, MEMORY, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(2 * MEMORY, DIGITS + 1)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x W/4 x 11 logits."""
        columns = self.column(self.seen(x)).squeeze(2).transpose(1, 2)
        return self.classes(self.along(columns)[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x W/4 x 11 probabilities."""
        return torch.softmax(self.logits(x), dim=-1)
