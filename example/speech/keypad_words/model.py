"""The network of the keypad words: convolutions over time, whose channels are the bands."""

from __future__ import annotations

import torch
from torch import nn

MELS, FRAMES = 40, 101
"""Log-mel bands, and frames in the input's second, 10 ms apart."""

WIDTHS = (32, 48, 64)
"""Channels of the three blocks, each of which halves the number of steps."""


class Block(nn.Module):
    """Two convolutions over nine steps with a shortcut; the first one halves the steps."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(inputs, outputs, 9, 2, padding=4, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv1d(outputs, outputs, 9, padding=4, bias=False), nn.BatchNorm1d(outputs))
        self.shortcut = nn.Sequential(nn.Conv1d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm1d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x inputs x T to N x outputs x T/2."""
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class KeypadWords(nn.Module):
    """N x 101 x 40 log-mels in, N x classes logits out.

    The form of TC-ResNet (Choi et al., "Temporal Convolution for Real-time Keyword Spotting on Mobile Devices", 2019).
    """

    def __init__(self, classes: int, dropout: float = 0.3) -> None:
        super().__init__()
        self.scale = nn.BatchNorm1d(MELS)
        self.front = nn.Conv1d(MELS, WIDTHS[0], 3, padding=1, bias=False)
        self.body = nn.Sequential(*(Block(*pair) for pair in zip(WIDTHS[:1] + WIDTHS, WIDTHS, strict=False)))
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(WIDTHS[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x classes logits."""
        return self.classes(self.dropout(self.body(self.front(self.scale(x.transpose(1, 2)))).mean(dim=2)))
