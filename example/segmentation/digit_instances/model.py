"""The network of the digit instances: the digit detector with prototypes of masks and coefficients for each cell."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from utils.export.networks.digit_detector import WIDTHS, DigitDetector, conv

PROTOTYPES = 8
STRIDE = 2
"""Pixels of the input per pixel of a prototype."""


class DigitInstances(nn.Module):
    """N x 3 x H x W preprocessed images in, boxes, scores, coefficients and prototypes out; H and W multiples of 16.

    The logits of an object's mask are its coefficients times the prototypes (YOLACT: Bolya et al., 2019). The
    detector's layers are not trained further.
    """

    def __init__(self) -> None:
        super().__init__()
        _, fourth, eighth, _ = WIDTHS
        self.detector = DigitDetector()
        self.detector.requires_grad_(False)
        self.coarse, self.mix = conv(eighth, fourth, size=1), conv(fourth, fourth)
        self.prototypes = nn.Sequential(nn.Conv2d(fourth, 4 * PROTOTYPES, 1), nn.PixelShuffle(2))
        self.coefficients = nn.Sequential(conv(eighth, eighth), nn.Conv2d(eighth, PROTOTYPES, 1))

    def train(self, mode: bool = True) -> DigitInstances:
        """Set the mode of the new layers; the detector keeps its statistics."""
        super().train(mode)
        self.detector.eval()
        return self

    def raw(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the detector's outputs, the coefficients (N x Q x 8), and the prototypes (N x 8 x H/2 x W/2)."""
        fourth, eighth = self.detector.features(x)
        wide = functional.interpolate(self.coarse(eighth), scale_factor=2.0, mode="nearest")
        found = self.prototypes(self.mix(fourth + wide))
        rows = torch.tanh(self.coefficients(eighth)).flatten(2).transpose(1, 2)
        return (*self.detector.heads(x, eighth), rows, found)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x (4 + 10 + 8) x Q: centre, width and height, scores and coefficients; and the prototypes."""
        boxes, there, which, rows, found = self.raw(x)
        start, end = boxes.split(2, dim=2)
        scores = torch.sigmoid(there) * torch.softmax(which, dim=2)
        return torch.cat([(start + end) / 2, end - start, scores, rows], dim=2).transpose(1, 2), found
