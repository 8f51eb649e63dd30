"""The network of the prompts' recogniser: convolutions along time with half a million parameters."""

from __future__ import annotations

import torch
from torch import nn

MELS = 40
CHANNELS = 112
STRIDE = 3
"""Frames of 10 ms per step of 30 ms."""

FRONT = 9
"""Kernel size of the first convolution in frames."""

DILATIONS = (1, 1, 1, 1, 2, 2, 2)
"""Dilations of the residual convolutions, whose kernels have five steps."""

MARGIN = FRONT // 2 + STRIDE * 2 * sum(DILATIONS) - STRIDE // 2
"""Context in frames on each side of a step's three frames; as many frames at each end have no step."""


class Residual(nn.Module):
    """A convolution over five steps with a residual; the output is shorter by four times the dilation."""

    def __init__(self, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.edge = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 5, dilation=dilation, bias=False)
        self.norm = nn.BatchNorm1d(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x channels x T to N x channels x (T - 4 dilation)."""
        return x[:, :, self.edge : -self.edge] + self.dropout(torch.relu(self.norm(self.conv(x))))


class PromptsCTC(nn.Module):
    """N x T x 40 log-mels in, N x (T - 2 MARGIN) / 3 x classes logits out.

    The convolutions are not padded: a step depends only on its three frames and MARGIN frames on each side. A recording
    processed in chunks with MARGIN extra frames on each side gives the same output as the whole recording.
    """

    def __init__(self, classes: int, channels: int = CHANNELS, dropout: float = 0.15) -> None:
        super().__init__()
        self.scale = nn.BatchNorm1d(MELS)
        self.front = nn.Sequential(
            nn.Conv1d(MELS, channels, FRONT, STRIDE, bias=False), nn.BatchNorm1d(channels), nn.ReLU()
        )
        self.body = nn.Sequential(*(Residual(channels, dilation, dropout) for dilation in DILATIONS))
        self.classes = nn.Conv1d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x steps x classes logits."""
        return self.classes(self.body(self.front(self.scale(x.transpose(1, 2))))).transpose(1, 2)
