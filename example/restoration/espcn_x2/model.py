"""The network of espcn_x2: an ESPCN of 25 thousand parameters that doubles height and width of an RGB image."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

SCALE = 2
WIDTH = 32
RADIUS = 5
"""Receptive field: an output pixel depends on input pixels at most this far from its own, in rows and columns."""


class Espcn(nn.Module):
    """N x 3 x H x W, RGB in 0..1, in; N x 3 x 2H x 2W out.

    Four convolutions at the size of the input, and a sub-pixel shuffle (Shi et al., 2016). They predict the difference
    to the input with every pixel repeated, which starts the training near the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, WIDTH, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(WIDTH, 3 * SCALE**2, 3, padding=1),
        )
        self.shuffle = nn.PixelShuffle(SCALE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x 3 x H x W to N x 3 x 2H x 2W."""
        return self.shuffle(self.body(x)) + functional.interpolate(x, scale_factor=float(SCALE), mode="nearest")
