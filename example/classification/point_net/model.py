"""The network: layers for each point, the maximum over the points, and layers for the whole."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class PointNet(nn.Module):
    """N x 64 x 3 points in, N x 8 logits out; the order of the points does not matter.

    PointNet (Qi et al., 2017) without its two networks that turn the input and the features.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = (3, 32, 64, 128)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.whole = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the logits of the classes."""
        return self.whole(self.points(points.transpose(1, 2)).amax(dim=2))
