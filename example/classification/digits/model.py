"""The network of the digits example: a ResNet of 38 thousand parameters for 32 x 32 images."""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (16, 24, 40)
"""Channels of the three stages, whose feature maps are 16 x 16, 8 x 8 and 4 x 4."""


def conv_bn(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution that keeps the image's size (divided by the stride), and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut (He et al., "Deep Residual Learning for Image Recognition", 2015)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(inputs, outputs, 3, stride)
        self.second = conv_bn(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x inputs x H x W to N x outputs x H/stride x W/stride."""
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class DigitsNet(nn.Module):
    """N x 3 x 32 x 32 preprocessed images in, N x 10 logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, WIDTHS[0], 3, stride=2)
        pairs = zip(WIDTHS[:1] + WIDTHS, WIDTHS, (1, 2, 2), strict=False)
        self.blocks = nn.Sequential(*(BasicBlock(inputs, outputs, stride) for inputs, outputs, stride in pairs))
        self.head = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the ten digits."""
        features = self.blocks(torch.relu(self.stem(x)))
        return self.head(features.mean(dim=(2, 3)))
