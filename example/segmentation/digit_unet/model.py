"""The network of the digit segmenter: a U-Net of 330 thousand parameters for 11 classes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

DIGITS = 10
WIDTHS = (16, 32, 64, 64)
"""Channels at strides 2, 4, 8 and 16."""


def conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    """Return a convolution that keeps the image's size (divided by the stride), its batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels), conv(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x channels x H x W to the same."""
        return x + self.body(x)


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Upsample by 2 (nearest neighbour)."""
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class DigitUNet(nn.Module):
    """N x 3 x H x W preprocessed images in, N x 11 x H x W logits out; H and W are multiples of 16.

    A U-Net (Ronneberger et al., 2015) whose skips are added rather than concatenated, with two heads: ink per pixel,
    and the digit at a quarter of the size. Together they give the logits of background and the ten digits. ``stem`` to
    ``mix`` have the names and shapes of the digit detector's.
    """

    def __init__(self) -> None:
        super().__init__()
        second, fourth, eighth, sixteenth = WIDTHS
        self.stem = nn.Sequential(conv(3, second, 2), conv(second, fourth, 2), Residual(fourth))
        self.eighth = nn.Sequential(conv(fourth, eighth, 2), Residual(eighth))
        self.sixteenth = nn.Sequential(conv(eighth, sixteenth, 2), Residual(sixteenth))
        self.lateral, self.mix = conv(sixteenth, eighth, size=1), conv(eighth, eighth)
        self.to_fourth, self.mix_fourth = conv(eighth, fourth, size=1), conv(fourth, fourth)
        self.to_second, self.mix_second = conv(fourth, second, size=1), conv(second, second)
        self.ink = nn.Sequential(nn.Conv2d(second, 4, 1), nn.PixelShuffle(2))
        self.context = conv(eighth, fourth, size=1)
        self.digit = nn.Sequential(conv(fourth, fourth), nn.Conv2d(fourth, DIGITS, 1))
        nn.init.constant_(self.ink[0].bias, -2.0)  # most pixels are background

    def raw(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits of ink (N x 1 x H x W) and of the digits (N x 10 x H x W)."""
        second = self.stem[0](x)
        fourth = self.stem[2](self.stem[1](second))
        eighth = self.eighth(fourth)
        eighth = self.mix(eighth + doubled(self.lateral(self.sixteenth(eighth))))
        fourth = self.mix_fourth(fourth + doubled(self.to_fourth(eighth)))
        second = self.mix_second(second + doubled(self.to_second(fourth)))
        digit = self.digit(fourth + doubled(self.context(eighth)))
        return self.ink(second), functional.interpolate(digit, scale_factor=4.0, mode="bilinear")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the 11 classes: P(digit) is P(ink) times P(digit | ink)."""
        ink, digit = self.raw(x)
        return torch.cat([torch.zeros_like(ink), ink + functional.log_softmax(digit, dim=1)], dim=1)
