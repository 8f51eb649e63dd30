"""PSMNet (Chang and Chen, 2018): disparity from a left and a right image, by a volume of both images' features.

The names of the weights are those of the authors' checkpoints (``pretrained_model_KITTI2015.tar``).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

STRIDE = 4
"""Pixels of the input per cell of the features and per step of the volume."""

LEAST = 256
"""Smallest side of the input in pixels, which gives one cell of the coarsest pooling."""

MULTIPLE = 16
"""Of which sides and the number of disparities are multiples."""

POOLED = (64, 32, 16, 8)
"""Sides of the pooled squares of features, in cells."""


def conv2d(inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a convolution that keeps the sides for a stride of 1, with batch norm."""
    padding = dilation * (size // 2)
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


def conv3d(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3 x 3 x 3 convolution with batch norm."""
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm3d(outputs))


def doubling3d(inputs: int, outputs: int) -> nn.Sequential:
    """Return a transposed convolution that doubles all sides, with batch norm."""
    layer = nn.ConvTranspose3d(inputs, outputs, 3, 2, 1, output_padding=1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm3d(outputs))


class BasicBlock(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Two convolutions, added to the input; without a ReLU after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(conv2d(inputs, outputs, 3, stride, dilation), nn.ReLU(inplace=True))
        self.conv2 = conv2d(outputs, outputs, 3, 1, dilation)
        self.downsample = None if inputs == outputs and stride == 1 else conv2d(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x outputs x H/stride x W/stride."""
        found: torch.Tensor = self.conv2(self.conv1(x))
        return found + (x if self.downsample is None else self.downsample(x))


def _blocks(inputs: int, outputs: int, count: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride, dilation)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, dilation) for _ in range(count - 1)))


class Features(nn.Module):  # type: ignore[misc]
    """N x 3 x H x W to N x 32 x H/4 x W/4, with means of squares of four sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.firstconv = nn.Sequential(
            conv2d(3, 32, 3, 2), nn.ReLU(), conv2d(32, 32, 3), nn.ReLU(), conv2d(32, 32, 3), nn.ReLU()
        )
        self.layer1, self.layer2 = _blocks(32, 32, 3), _blocks(32, 64, 16, stride=2)
        self.layer3, self.layer4 = _blocks(64, 128, 3), _blocks(128, 128, 3, dilation=2)
        for number, side in enumerate(POOLED, start=1):
            self.add_module(f"branch{number}", nn.Sequential(nn.AvgPool2d(side), conv2d(128, 32, 1), nn.ReLU()))
        self.lastconv = nn.Sequential(conv2d(320, 128, 3), nn.ReLU(), nn.Conv2d(128, 32, 1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features."""
        early = self.layer2(self.layer1(self.firstconv(x)))
        late = self.layer4(self.layer3(early))
        pooled = [
            functional.interpolate(branch(late), size=late.shape[2:], mode="bilinear", align_corners=False)
            for branch in (self.branch4, self.branch3, self.branch2, self.branch1)
        ]
        found: torch.Tensor = self.lastconv(torch.cat([early, late, *pooled], dim=1))
        return found


class Hourglass(nn.Module):  # type: ignore[misc]
    """A volume at half and quarter of its sides and back, with the volumes of the hourglass before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        twice = 2 * width
        self.conv1 = nn.Sequential(conv3d(width, twice, 2), nn.ReLU())
        self.conv2 = conv3d(twice, twice)
        self.conv3 = nn.Sequential(conv3d(twice, twice, 2), nn.ReLU())
        self.conv4 = nn.Sequential(conv3d(twice, twice), nn.ReLU())
        self.conv5, self.conv6 = doubling3d(twice, twice), doubling3d(twice, width)

    def forward(
        self, x: torch.Tensor, down: torch.Tensor | None, up: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the volume, and its two halved ones: on the way down and on the way up.

        ``down``: the first hourglass's volume on the way down; ``up``: the last one's on the way up.
        """
        half = self.conv2(self.conv1(x))
        half = functional.relu(half if up is None else half + up)
        back = self.conv5(self.conv4(self.conv3(half)))
        raised = functional.relu(back + (half if down is None else down))
        return self.conv6(raised), half, raised


def _classifier() -> nn.Sequential:
    return nn.Sequential(conv3d(32, 32), nn.ReLU(), nn.Conv3d(32, 1, 3, padding=1, bias=False))


class PsmNet(nn.Module):  # type: ignore[misc]
    """Left and right image, N x 3 x H x W, to the disparity of the left one in pixels, N x 1 x H x W.

    H and W are multiples of 16, at least 256.

    Args:
        disparities: number of disparities, from 0 pixels on; a multiple of 16. The weights do not depend on it.
    """

    def __init__(self, disparities: int) -> None:
        super().__init__()
        self.disparities = disparities
        self.feature_extraction = Features()
        self.dres0 = nn.Sequential(conv3d(64, 32), nn.ReLU(), conv3d(32, 32), nn.ReLU())
        self.dres1 = nn.Sequential(conv3d(32, 32), nn.ReLU(), conv3d(32, 32))
        self.dres2, self.dres3, self.dres4 = Hourglass(32), Hourglass(32), Hourglass(32)
        self.classif1, self.classif2, self.classif3 = _classifier(), _classifier(), _classifier()

    def volume(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return both images' features by disparity, N x 2C x D x H x W; 0 where the right image ends."""
        width = left.shape[3]
        found = []
        for step in range(self.disparities // STRIDE):
            pair = torch.cat([left[..., step:], right[..., : width - step]], dim=1)
            found.append(functional.pad(pair, (step, 0)))
        return torch.stack(found, dim=2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the mean disparity of the last hourglass's distribution (GC-Net, Kendall et al., 2017)."""
        volume = self.dres0(self.volume(self.feature_extraction(left), self.feature_extraction(right)))
        volume = self.dres1(volume) + volume
        one, down, up = self.dres2(volume, None, None)
        one = one + volume
        two, _, up = self.dres3(one, down, up)
        two = two + volume
        three, _, _ = self.dres4(two, down, up)
        three = three + volume
        scores = self.classif1(one)
        scores = self.classif2(two) + scores
        scores = self.classif3(three) + scores
        size = (self.disparities, *left.shape[2:])
        whole = functional.interpolate(scores, size=size, mode="trilinear", align_corners=False)
        steps = torch.arange(self.disparities, dtype=left.dtype, device=left.device).reshape(1, -1, 1, 1)
        return (whole.squeeze(1).softmax(dim=1) * steps).sum(dim=1, keepdim=True)
