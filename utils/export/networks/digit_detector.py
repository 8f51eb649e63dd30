"""The network of the digit detector: anchor free, one level of stride 8, 340 thousand parameters."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

STRIDE = 8
CLASSES = 10
WIDTHS = (16, 32, 64, 64)
"""Channels at strides 2, 4, 8 and 16."""


def conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    """Return a convolution that keeps the image's size (divided by the stride), its batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):  # type: ignore[misc]
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels), conv(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x channels x H x W to the same."""
        return x + self.body(x)


class DigitDetector(nn.Module):  # type: ignore[misc]
    """N x 3 x H x W preprocessed images in, boxes and scores out; H and W are multiples of 16.

    For each cell of 8 x 8 pixels it predicts whether there is a digit, its class, and the centre, width and height of
    its box. It is free of anchors: the cells around the centre of a digit are its positives (FCOS: Tian et al., 2019).
    The score of a class is P(digit) times P(class | digit).
    """

    def __init__(self) -> None:
        super().__init__()
        second, fourth, eighth, sixteenth = WIDTHS
        self.stem = nn.Sequential(conv(3, second, 2), conv(second, fourth, 2), Residual(fourth))
        self.eighth = nn.Sequential(conv(fourth, eighth, 2), Residual(eighth))
        self.sixteenth = nn.Sequential(conv(eighth, sixteenth, 2), Residual(sixteenth))
        self.lateral = conv(sixteenth, eighth, size=1)
        self.mix = conv(eighth, eighth)
        self.score = nn.Sequential(conv(eighth, eighth), nn.Conv2d(eighth, 1 + CLASSES, 1))
        self.box = nn.Sequential(conv(eighth, eighth), nn.Conv2d(eighth, 4, 1))
        nn.init.constant_(self.score[1].bias[:1], -4.0)  # nearly every cell shows no digit
        nn.init.constant_(self.box[1].bias[2:], math.log(24 / STRIDE))

    def raw(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return boxes, objectness logits and class logits of the Q cells.

        Their shapes are N x Q x 4 (left, top, right, bottom in pixels), N x Q x 1 and N x Q x 10.
        """
        return self.heads(x, self.features(x)[1])

    def features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features of stride 4 (N x 32 x H/4 x W/4) and of stride 8 (N x 64 x H/8 x W/8)."""
        fourth = self.stem(x)
        eighth = self.eighth(fourth)
        wide = self.lateral(self.sixteenth(eighth))
        return fourth, self.mix(eighth + functional.interpolate(wide, scale_factor=2.0, mode="nearest"))

    def heads(self, x: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the outputs of :meth:`raw` from the features of stride 8."""
        shift, size = self.box(features).split(2, dim=1)
        # From the cell's centre to the edges first: float16 rounds such distances less than places in the image,
        # and the centres, whole numbers, not at all.
        shift, half = shift * STRIDE, size.exp() * (STRIDE / 2)
        boxes = torch.cat([shift - half, shift + half], dim=1) + centres(x).repeat(1, 2, 1, 1)
        there, which = self.score(features).flatten(2).transpose(1, 2).split((1, CLASSES), dim=2)
        return boxes.flatten(2).transpose(1, 2), there, which

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return boxes (N x Q x 4, pixels of the input) and scores (N x Q x 10, 0 to 1)."""
        boxes, there, which = self.raw(x)
        return boxes, torch.sigmoid(there) * torch.softmax(which, dim=2)


def centres(x: torch.Tensor) -> torch.Tensor:
    """Return x and y of the cells' centres in pixels, 1 x 2 x H/8 x W/8."""
    rows, columns = ((torch.arange(size // STRIDE, device=x.device) + 0.5) * STRIDE for size in x.shape[-2:])
    down, right = torch.meshgrid(rows, columns, indexing="ij")
    return torch.stack([right, down])[None].to(x.dtype)


def load_detector(network: DigitDetector, file: Path) -> None:
    """Load the weights of the digit detector into a part of another network, which does not train them further."""
    network.load_state_dict(torch.load(file, weights_only=True))
    network.requires_grad_(False)
