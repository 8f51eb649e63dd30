"""The network of planes_stereo: disparity and confidence from two images, by a volume of differences."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

STEPS, GROUPS, FEATURES, WIDTH = 10, 4, 24, 8
"""Disparities of the volume, 0 to 9 pixels at half the size; groups of channels; channels of features and volume."""

SHARPNESS = 4.0
"""Factor of the mean difference in the scores."""


def conv(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a 3 x 3 convolution with batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def conv3d(inputs: int, outputs: int) -> nn.Sequential:
    """Return a 3 x 3 x 3 convolution with batch norm and ReLU."""
    layer = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm3d(outputs), nn.ReLU(inplace=True))


class PlanesStereo(nn.Module):
    """Two rectified images N x 3 x H x W, RGB in 0..1, in; disparity and confidence, N x 1 x H x W, out.

    Features of both images at half the size are compared at every disparity. Three dimensional convolutions add to the
    mean difference and turn it into a distribution, whose mean is the disparity (GC-Net, Kendall et al., 2017); a
    second stage at the full size adds a correction. H and W are even.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(3, 16, stride=2),
            conv(16, FEATURES),
            nn.Conv2d(FEATURES, FEATURES, 3, padding=1, bias=False),
            nn.BatchNorm2d(FEATURES),
        )
        self.mix = nn.Sequential(conv3d(GROUPS, WIDTH), conv3d(WIDTH, WIDTH), nn.Conv3d(WIDTH, 1, 3, padding=1))
        self.sure = nn.Sequential(conv(STEPS + FEATURES, 16), nn.Conv2d(16, 1, 3, padding=1))
        self.refine = nn.Sequential(conv(4, 16), conv(16, 16, dilation=2), nn.Conv2d(16, 1, 3, padding=1))

    def volume(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the mean absolute difference of N x C x h x w features by disparity, N x GROUPS x STEPS x h x w."""
        height, width = left.shape[2:]
        shifted = functional.pad(right, (STEPS - 1, 0))
        grouped = (-1, GROUPS, FEATURES // GROUPS, height, width)
        found = []
        for step in range(STEPS):
            first = STEPS - 1 - step
            off = (left - shifted[:, :, :, first : first + width]).abs()
            found.append(off.reshape(grouped).mean(dim=2))
        return torch.stack(found, dim=2)

    def raw(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the disparity of both stages in pixels, and the logit of the confidence, each N x 1 x H x W."""
        one, other = self.features(left - 0.5), self.features(right - 0.5)
        volume = self.volume(one, other)
        scores = self.mix(volume)[:, 0] - SHARPNESS * volume.mean(dim=1)
        shares = torch.softmax(scores, dim=1)
        steps = torch.arange(STEPS, dtype=left.dtype, device=left.device).reshape(1, STEPS, 1, 1)
        half = (shares * steps).sum(dim=1, keepdim=True)
        coarse = functional.interpolate(half * 2, scale_factor=2.0, mode="bilinear")
        fine = coarse + self.refine(torch.cat([left - 0.5, coarse / 16], dim=1))
        sure = self.sure(torch.cat([shares, one], dim=1))
        return coarse, fine, functional.interpolate(sure, scale_factor=2.0, mode="bilinear")

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the disparity in pixels, and the probability that it is right to one pixel."""
        _, disparity, sure = self.raw(left, right)
        return functional.relu(disparity), torch.sigmoid(sure)
