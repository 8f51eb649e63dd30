"""YOLOv8 for poses and for instance segmentation, decoded as its ONNX exports are.

The names of the weights are those of ``YOLO("yolov8n-pose.pt").model.state_dict()`` of the package ultralytics, and the
numbers of the layers are those of its configuration (``model.0`` to ``model.22``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

DEPTHS_AND_WIDTHS = {
    "n": (0.33, 0.25, 1024),
    "s": (0.33, 0.5, 1024),
    "m": (0.67, 0.75, 768),
    "l": (1.0, 1.0, 512),
    "x": (1.0, 1.25, 512),
}
"""Factors of the numbers of blocks and of channels, and the most channels before the factor."""

STRIDES = (8, 16, 32)
"""Pixels of the input per cell of the three levels."""

BINS = 16
"""Distances to an edge of a box, 0 to 15 cells, that are classified."""

PROTOTYPES, PROTOTYPE_WIDTH = 32, 256
"""Prototypes of masks, and the channels they are made of, before the factor."""

RARE = -4.0
"""Initial bias of the class scores: objects are rare."""


class Conv(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Convolution with batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x outputs x H/stride x W/stride."""
        return functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Two 3 x 3 convolutions, added to the input if it is a shortcut."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels, 3), Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        found: torch.Tensor = self.cv2(self.cv1(x))
        return x + found if self.shortcut else found


class C2f(nn.Module):  # type: ignore[misc]
    """Blocks in a row on half of the channels, joined with both halves and all that lies between."""

    def __init__(self, inputs: int, outputs: int, blocks: int, shortcut: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, 2 * half), Conv((2 + blocks) * half, outputs)
        self.m = nn.ModuleList(Bottleneck(half, shortcut) for _ in range(blocks))
        self.half = half

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x outputs x H x W."""
        parts = list(self.cv1(x).split(self.half, dim=1))
        for block in self.m:
            parts.append(block(parts[-1]))
        found: torch.Tensor = self.cv2(torch.cat(parts, dim=1))
        return found


class SPPF(nn.Module):  # type: ignore[misc]
    """Features, and their maxima of 5 x 5 cells applied one, two and three times."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(channels // 2 * 4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        found: torch.Tensor = self.cv2(torch.cat(parts, dim=1))
        return found


class Distances(nn.Module):  # type: ignore[misc]
    """The mean of a distribution over distances (Li et al., 2020): N x 64 x A to N x 4 x A; ``cells``: A."""

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.cells = cells
        self.conv = nn.Conv2d(BINS, 1, 1, bias=False).requires_grad_(False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.arange(BINS, dtype=torch.float32).reshape(1, BINS, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the distances in cells."""
        shares = x.reshape(-1, 4, BINS, self.cells).transpose(1, 2).softmax(dim=1)
        found: torch.Tensor = self.conv(shares).reshape(-1, 4, self.cells)
        return found


def _branch(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(Conv(inputs, width, 3), Conv(width, width, 3), nn.Conv2d(width, outputs, 1))


class Head(nn.Module):  # type: ignore[misc]
    """Boxes, scores and further numbers of every cell of three levels.

    Args:
        widths: channels of the levels. classes: C. extra: further numbers per cell. size: H and W of the input.
    """

    def __init__(self, widths: Sequence[int], classes: int, extra: int, size: tuple[int, int]) -> None:
        super().__init__()
        boxes, scores = max(16, widths[0] // 4, 4 * BINS), max(widths[0], min(classes, 100))
        others = max(widths[0] // 4, extra)
        self.cv2 = nn.ModuleList(_branch(width, boxes, 4 * BINS) for width in widths)
        self.cv3 = nn.ModuleList(_branch(width, scores, classes) for width in widths)
        self.cv4 = nn.ModuleList(_branch(width, others, extra) for width in widths)
        self.cells = [(size[0] // stride) * (size[1] // stride) for stride in STRIDES]
        self.dfl = Distances(sum(self.cells))
        centres, pixels = _cells(size)
        self.register_buffer("centres", centres, persistent=False)
        self.register_buffer("pixels", pixels, persistent=False)
        for branch in self.cv3:
            nn.init.constant_(branch[2].bias, RARE)

    def decoded(self, levels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return centres, sizes (N x 2 x A, pixels), scores (N x C x A), and the further numbers (N x E x A)."""
        # all sizes but the batch are written out, so that a traced file has them too
        boxes, scores, others = (
            torch.cat(
                [
                    branch(one).reshape(-1, branch[2].out_channels, cells)
                    for branch, one, cells in zip(branches, levels, self.cells, strict=True)
                ],
                dim=2,
            )
            for branches in (self.cv2, self.cv3, self.cv4)
        )
        before, after = self.dfl(boxes).split(2, dim=1)
        # cells before pixels, because float16 rounds small numbers less
        middle = (self.centres + (after - before) / 2) * self.pixels
        return middle, (before + after) * self.pixels, scores.sigmoid(), others


def _cells(size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the centres of all cells, x and y in cells (2 x A), and the pixels of each (A)."""
    centres, pixels = [], []
    for stride in STRIDES:
        rows, columns = (torch.arange(side // stride) + 0.5 for side in size)
        grid = torch.meshgrid(rows, columns, indexing="ij")
        centres.append(torch.stack(grid[::-1]).flatten(1))
        pixels.append(torch.full((centres[-1].shape[1],), float(stride)))
    return torch.cat(centres, dim=1), torch.cat(pixels)


class Pose(Head):
    """Boxes, scores and points: N x (4 + C + 3K) x A, in pixels of the input."""

    def __init__(self, widths: Sequence[int], classes: int, points: int, size: tuple[int, int]) -> None:
        super().__init__(widths, classes, 3 * points, size)
        self.points = points

    def forward(self, levels: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the rows."""
        middle, extent, scores, others = self.decoded(levels)
        points = others.reshape(-1, self.points, 3, sum(self.cells))
        places = (points[:, :, :2] * 2 + (self.centres - 0.5)) * self.pixels
        rows = torch.cat([places, points[:, :, 2:].sigmoid()], dim=2).reshape(-1, 3 * self.points, sum(self.cells))
        return torch.cat([middle, extent, scores, rows], dim=1)


class Prototypes(nn.Module):  # type: ignore[misc]
    """Prototypes of masks of the finest level, at twice its sides."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cv1 = Conv(inputs, width, 3)
        self.upsample = nn.ConvTranspose2d(width, width, 2, 2)
        self.cv2, self.cv3 = Conv(width, width, 3), Conv(width, PROTOTYPES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x 32 x 2H x 2W."""
        found: torch.Tensor = self.cv3(self.cv2(self.upsample(self.cv1(x))))
        return found


class Segment(Head):
    """Boxes, scores and coefficients, N x (4 + C + 32) x A, and prototypes, N x 32 x H/4 x W/4."""

    def __init__(self, widths: Sequence[int], classes: int, width: int, size: tuple[int, int]) -> None:
        super().__init__(widths, classes, PROTOTYPES, size)
        self.proto = Prototypes(widths[0], width)

    def forward(self, levels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows and the prototypes."""
        middle, extent, scores, others = self.decoded(levels)
        return torch.cat([middle, extent, scores, others], dim=1), self.proto(levels[0])


class _Yolo(nn.Module):  # type: ignore[misc]
    """The layers of YOLOv8 in the order of their numbers; those without weights are ``Identity``."""

    def __init__(self, name: str) -> None:
        super().__init__()
        depth, factor, most = DEPTHS_AND_WIDTHS[name]

        def blocks(number: int) -> int:
            return max(round(number * depth), 1)

        self.first, *self.widths = (-(-int(min(wide, most) * factor) // 8) * 8 for wide in (64, 128, 256, 512, 1024))
        self.prototype_width = -(-int(min(PROTOTYPE_WIDTH, most) * factor) // 8) * 8
        two, three, four, five = self.widths
        self.model = nn.ModuleList(
            [
                Conv(3, self.first, 3, 2),
                Conv(self.first, two, 3, 2),
                C2f(two, two, blocks(3), shortcut=True),
                Conv(two, three, 3, 2),
                C2f(three, three, blocks(6), shortcut=True),
                Conv(three, four, 3, 2),
                C2f(four, four, blocks(6), shortcut=True),
                Conv(four, five, 3, 2),
                C2f(five, five, blocks(3), shortcut=True),
                SPPF(five),
                nn.Identity(),
                nn.Identity(),
                C2f(five + four, four, blocks(3), shortcut=False),
                nn.Identity(),
                nn.Identity(),
                C2f(four + three, three, blocks(3), shortcut=False),
                Conv(three, three, 3, 2),
                nn.Identity(),
                C2f(three + four, four, blocks(3), shortcut=False),
                Conv(four, four, 3, 2),
                nn.Identity(),
                C2f(four + five, five, blocks(3), shortcut=False),
            ]
        )

    def levels(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the features of the three levels, the finest first, from N x 3 x H x W in 0..1."""
        kept = {}
        for number in range(10):
            x = self.model[number](x)
            kept[number] = x
        eighth, sixteenth, last = kept[4], kept[6], kept[9]
        middle = self.model[12](torch.cat([_doubled(last), sixteenth], dim=1))
        fine = self.model[15](torch.cat([_doubled(middle), eighth], dim=1))
        middle = self.model[18](torch.cat([self.model[16](fine), middle], dim=1))
        coarse = self.model[21](torch.cat([self.model[19](middle), last], dim=1))
        return [fine, middle, coarse]


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class YoloPose(_Yolo):
    """YOLOv8 for poses: N x 3 x H x W in 0..1 to N x (4 + C + 3K) x A; H and W are multiples of 32.

    Args:
        name: of :data:`DEPTHS_AND_WIDTHS`. classes: C. points: K. size: H and W, which the weights do not depend on.
    """

    def __init__(self, name: str, classes: int, points: int, size: tuple[int, int]) -> None:
        super().__init__(name)
        self.model.append(Pose(self.widths[1:], classes, points, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return centre, width, height, class scores, and x, y and score of each point, in columns of cells."""
        found: torch.Tensor = self.model[22](self.levels(x))
        return found


class YoloSegment(_Yolo):
    """YOLOv8 for instances: N x 3 x H x W in 0..1 to N x (4 + C + 32) x A and N x 32 x H/4 x W/4.

    Args:
        name: of :data:`DEPTHS_AND_WIDTHS`. classes: C. size: H and W, which the weights do not depend on.
    """

    def __init__(self, name: str, classes: int, size: tuple[int, int]) -> None:
        super().__init__(name)
        self.model.append(Segment(self.widths[1:], classes, self.prototype_width, size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return centre, width, height, class scores and coefficients in columns of cells, and the prototypes."""
        found: tuple[torch.Tensor, torch.Tensor] = self.model[22](self.levels(x))
        return found
