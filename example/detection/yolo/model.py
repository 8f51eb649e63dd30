"""A small detector of our own with the head that Ultralytics' exports have since version 8: N x (4 + C) x A.

It is written from the published description of such heads (distances to four edges as distributions: Li et al.,
"Generalized Focal Loss", 2020; anchor points: Tian et al., "FCOS", 2019). It is not a YOLO network and has no weights:
it replaces the ONNX file that the user provides, so that every command can be run.
"""

from __future__ import annotations

import torch
from torch import nn

BINS = 16
"""Number of bins of a distance: 0 to 15 strides."""

STRIDES = (8, 16, 32)


def step(inputs: int, outputs: int, stride: int = 2) -> nn.Sequential:
    """Return a 3 x 3 convolution, its batch norm and SiLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU())


class Head(nn.Module):
    """Boxes and scores of one feature map."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.boxes = nn.Sequential(step(channels, channels, 1), nn.Conv2d(channels, 4 * BINS, 1))
        self.scores = nn.Sequential(step(channels, channels, 1), nn.Conv2d(channels, classes, 1))

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x 4 x A expected distances (left, top, right, bottom) in strides, and N x C x A probabilities."""
        split = self.boxes(features).flatten(2).unflatten(1, (4, BINS))
        distances = (split.softmax(dim=2) * torch.arange(BINS, dtype=split.dtype)[:, None]).sum(dim=2)
        return distances, self.scores(features).flatten(2).sigmoid()


class SmallDetector(nn.Module):
    """Three feature maps at the strides 8, 16 and 32, and a head on each.

    Args:
        classes: number of classes.
        size: height and width of the input in pixels, multiples of 32.
    """

    def __init__(self, classes: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(step(3, 8), step(8, 16))
        self.stages = nn.ModuleList([step(16, 24), step(24, 32), step(32, 48)])
        self.heads = nn.ModuleList([Head(channels, classes) for channels in (24, 32, 48)])
        points, scales = [], []
        for stride in STRIDES:
            rows, columns = size[0] // stride, size[1] // stride
            y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
            points.append(torch.stack([x, y]).flatten(1))
            scales.append(torch.full((1, rows * columns), float(stride)))
        self.register_buffer("points", torch.cat(points, dim=1), persistent=False)
        self.register_buffer("scales", torch.cat(scales, dim=1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return N x (4 + C) x A: centre, width and height in pixels, and a score per class."""
        found, features = [], self.stem(images)
        for stage, head in zip(self.stages, self.heads, strict=True):
            features = stage(features)
            found.append(head(features))
        distances = torch.cat([one for one, _ in found], dim=2)
        low, high = self.points - distances[:, :2], self.points + distances[:, 2:]
        boxes = torch.cat([(low + high) / 2, high - low], dim=1) * self.scales
        return torch.cat([boxes, torch.cat([one for _, one in found], dim=2)], dim=1)
