"""The network: an aligned grey face of 64 x 64 pixels in, an embedding of 64 values with norm 1 out."""

from __future__ import annotations

import torch
from torch import nn

SIZE = 64
"""Height and width of the input in pixels."""

WIDTH = 64
"""Size of an embedding."""

POINTS = ((0.271, 0.263), (0.710, 0.263), (0.492, 0.607), (0.295, 0.733), (0.688, 0.733))
"""Positions of eyes, nose and corners of the mouth in the input, as fractions of its sides."""

SOFT = 0.05
"""Added to the standard deviation of an image, so that a constant image is not divided by zero."""


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3 x 3 convolution, its batch norm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class FaceNet(nn.Module):
    """Six convolutions, a weight for each position of each feature map, and a linear layer; 95 thousand parameters.

    An image is normalised first: its mean is subtracted, and it is divided by its standard deviation.
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
        """Map faces, N x 1 x 64 x 64 in 0..1, to embeddings, N x 64.

        In training a mirrored face is another person. In evaluation the embeddings of a face and of its mirror image
        are added, so that both have the same embedding.
        """
        found = self.direction(x)
        return found if self.training else of_length_one(found + self.direction(x.flip(3)))

    def direction(self, x: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of faces without mirroring."""
        away = x - x.mean((2, 3), keepdim=True)
        spread = away.square().mean((2, 3), keepdim=True).sqrt()
        maps = self.body(away / (spread + SOFT))
        return of_length_one(self.matrix(self.norm(self.places(maps)).flatten(1)))


def of_length_one(rows: torch.Tensor) -> torch.Tensor:
    """Return N x D scaled to length 1."""
    return rows / (rows.square().sum(1, keepdim=True) + 1e-6).sqrt()
