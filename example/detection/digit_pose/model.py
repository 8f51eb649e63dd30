"""The network of the digit poses: the digit detector with a head for three key points per cell."""

from __future__ import annotations

import torch
from torch import nn

from utils.export.networks.digit_detector import STRIDE, WIDTHS, DigitDetector, centres, conv

POINTS = 3


class DigitPose(nn.Module):
    """N x 3 x H x W preprocessed images in, boxes, scores and key points out; H and W are multiples of 16.

    The detector's layers are not trained further. The head sees its features of strides 4 and 8.
    """

    def __init__(self) -> None:
        super().__init__()
        _, fourth, eighth, _ = WIDTHS
        self.detector = DigitDetector()
        self.detector.requires_grad_(False)
        self.fine = conv(fourth, eighth, 2)
        self.points = nn.Sequential(conv(eighth, eighth), conv(eighth, eighth), nn.Conv2d(eighth, 3 * POINTS, 1))

    def train(self, mode: bool = True) -> DigitPose:
        """Set the mode of the head; the detector keeps its statistics."""
        super().train(mode)
        self.detector.eval()
        return self

    def raw(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the detector's outputs, the points (N x Q x 3 x 2, pixels), and their logits (N x Q x 3)."""
        fourth, eighth = self.detector.features(x)
        found = self.points(eighth + self.fine(fourth)).flatten(2)
        # from the cell's centre first, because float16 rounds such distances less than places in the image
        away = found[:, : 2 * POINTS] * STRIDE + centres(x).repeat(1, POINTS, 1, 1).flatten(2)
        places = away.transpose(1, 2).unflatten(2, (POINTS, 2))
        return (*self.detector.heads(x, eighth), places, found[:, 2 * POINTS :].transpose(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x (4 + 10 + 9) x Q: centre, width and height, scores, and x, y and probability of each point."""
        boxes, there, which, places, logits = self.raw(x)
        start, end = boxes.split(2, dim=2)
        scores = torch.sigmoid(there) * torch.softmax(which, dim=2)
        points = torch.cat([places, torch.sigmoid(logits)[..., None]], dim=3).flatten(2)
        return torch.cat([(start + end) / 2, end - start, scores, points], dim=2).transpose(1, 2)
