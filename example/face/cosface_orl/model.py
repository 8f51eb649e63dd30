"""The network: an aligned grey face of 64 x 64 pixels in, a description of 64 numbers of length 1 out."""

from __future__ import annotations

import torch
from torch import nn

SIZE = 64
"""Height and width of the input in pixels."""

WIDTH = 64
"""Size of a description."""

POINTS = ((0.271, 0.263), (0.710, 0.263), (0.492, 0.607), (0.295, 0.733), (0.688, 0.733))
"""Where eyes, nose and corners of the mouth lie in the input, as shares of its sides: the face fills it."""

SOFT = 0.05
"""Added to an image's spread, so that one without any is not divided by nothing."""


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3 x 3 convolution, its normalisation and ReLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class FaceNet(nn.Module):
    """Six convolutions, a weight of its own for every place of each map, and a matrix; 95 thousand parameters.

    The light of an image is taken out first: its mean is subtracted, and it is divided by its spread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            block(1, 16, 2), block(16, 24, 2), block(24, 32), block(32, 48, 2), block(48, 64), block(64, 64, 2)
        )
        self.places = nn.Conv2d(64, 64, SIZE // 16, groups=64, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.matrix = nn.Linear(64, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Describe faces, N x 1 x 64 x 64 of 0..1, by N x 64.

        While it learns, a mirrored face is another person's. Afterwards the directions of both sides of the mirror are
        added, so that a face and its mirror image have one description.
        """
        found = self.direction(x)
        return found if self.training else of_length_one(found + self.direction(x.flip(3)))

    def direction(self, x: torch.Tensor) -> torch.Tensor:
        """Describe faces as they are."""
        away = x - x.mean((2, 3), keepdim=True)
        spread = away.square().mean((2, 3), keepdim=True).sqrt()
        maps = self.body(away / (spread + SOFT))
        return of_length_one(self.matrix(self.norm(self.places(maps)).flatten(1)))


def of_length_one(rows: torch.Tensor) -> torch.Tensor:
    """Return N x D scaled to length 1."""
    return rows / (rows.square().sum(1, keepdim=True) + 1e-6).sqrt()
