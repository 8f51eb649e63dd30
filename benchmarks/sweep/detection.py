"""Detectors with their heads, without non-maximum suppression."""

from __future__ import annotations

import torch
from torch import nn

from sweep.row import Row, images
from utils.export.networks.torchvision_models import import_torchvision

models = import_torchvision().models
CLASSES, CHANNELS = 6, 32


class Levels(nn.Module):
    """A convolutional backbone with a feature pyramid: three levels of 32 channels."""

    def __init__(self) -> None:
        super().__init__()
        steps = [(3, 16), (16, 32), (32, 48), (48, 64)]
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in steps
        )
        self.side = nn.ModuleList(nn.Conv2d(b, CHANNELS, 1) for _, b in steps[1:])
        self.out = nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1) for _ in steps[1:])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the levels, the finest first."""
        found = []
        for step in self.steps:
            x = step(x)
            found.append(x)
        levels = [side(one) for side, one in zip(self.side, found[1:], strict=True)]
        for i in (1, 0):
            wider = nn.functional.interpolate(levels[i + 1], size=levels[i].shape[-2:], mode="nearest")
            levels[i] = levels[i] + wider
        return [out(level) for out, level in zip(self.out, levels, strict=True)]


class Detector(nn.Module):
    """Levels and a head of torchvision; scores as probabilities."""

    def __init__(self, head: nn.Module, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.levels, self.head, self.keys = Levels(), head, keys
        for part in self.head.modules():
            if isinstance(part, nn.Conv2d):  # published initial weights make all scores alike
                nn.init.kaiming_normal_(part.weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the head's outputs of all levels."""
        found = self.head(self.levels(x))
        return (torch.sigmoid(found[self.keys[0]]), *(found[key] for key in self.keys[1:]))


def _retinanet() -> nn.Module:
    return Detector(models.detection.retinanet.RetinaNetHead(CHANNELS, 3, CLASSES), ("cls_logits", "bbox_regression"))


def _fcos() -> nn.Module:
    head = models.detection.fcos.FCOSHead(CHANNELS, 1, CLASSES, 2)
    return Detector(head, ("cls_logits", "bbox_regression", "bbox_ctrness"))


def _ssd() -> nn.Module:
    return Detector(models.detection.ssd.SSDHead([CHANNELS] * 3, [4] * 3, CLASSES), ("cls_logits", "bbox_regression"))


class Yolo(nn.Module):
    """A YOLO-like detector: anchors, and boxes decoded on the grid of every level."""

    def __init__(self, anchors: int = 3) -> None:
        super().__init__()
        self.levels, self.anchors = Levels(), anchors
        self.heads = nn.ModuleList(nn.Conv2d(CHANNELS, anchors * (5 + CLASSES), 1) for _ in range(3))
        self.sizes = nn.Parameter(torch.rand(3, anchors, 1, 1, 2) * 20 + 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return boxes, objectness and class scores: (batch, boxes, 5 + classes)."""
        found = []
        for i, (head, level) in enumerate(zip(self.heads, self.levels(x), strict=True)):
            batch, _, high, wide = level.shape
            y = torch.sigmoid(head(level)).view(batch, self.anchors, 5 + CLASSES, high, wide).permute(0, 1, 3, 4, 2)
            rows, columns = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
            grid = torch.stack([columns, rows], -1).to(y.dtype)
            centre = (y[..., :2] * 2 - 0.5 + grid) * (4.0 * 2**i)
            size = (y[..., 2:4] * 2) ** 2 * self.sizes[i]
            found.append(torch.cat([centre, size, y[..., 4:]], -1).reshape(batch, -1, 5 + CLASSES))
        return torch.cat(found, 1)


class Detr(nn.Module):
    """DETR (Carion et al., 2020): queries attend to an image's features."""

    def __init__(self, width: int = 32, queries: int = 8) -> None:
        super().__init__()
        self.levels = Levels()
        self.transformer = nn.Transformer(width, 4, 2, 2, 64, batch_first=True)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.places = nn.Parameter(torch.randn(64, width) * 0.5)
        self.kinds, self.boxes = nn.Linear(width, CLASSES + 1), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return class logits and boxes of every query."""
        pixels = self.levels(x)[1].flatten(2).transpose(1, 2)
        pixels = pixels + self.places[: pixels.shape[1]]
        found = self.transformer(pixels, self.queries.unsqueeze(0).expand(x.shape[0], -1, -1))
        return self.kinds(found), torch.sigmoid(self.boxes(found))


class CenterNet(nn.Module):
    """Objects as points (Zhou et al., 2019): a heat map's peaks, found by pooling and top-k."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = Levels()
        self.heat, self.size = nn.Conv2d(CHANNELS, CLASSES, 1), nn.Conv2d(CHANNELS, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of the 10 highest peaks, and sizes everywhere."""
        level = self.levels(x)[0]
        heat = torch.sigmoid(self.heat(level))
        peaks = heat * (nn.functional.max_pool2d(heat, 3, 1, 1) == heat).to(heat.dtype)
        return torch.topk(peaks.flatten(1), 10).values, self.size(level)


def _yolos() -> nn.Module:
    import transformers

    from sweep.text import Picked

    config = transformers.YolosConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                                      image_size=[64, 64], patch_size=16, num_detection_tokens=8)  # fmt: skip
    return Picked(transformers.YolosForObjectDetection(config), ("pixel_values",), ("logits", "pred_boxes"))


BOTH = ("scores", "boxes")
ROWS = (
    Row("retinanet head", _retinanet, images(), outputs=BOTH),
    Row("fcos head", _fcos, images(), outputs=(*BOTH, "centres")),
    Row("ssd head", _ssd, images(), outputs=BOTH),
    Row("yolo (decoded)", Yolo, images()),
    Row("detr", Detr, images(), outputs=BOTH),
    Row("yolos", _yolos, images(), outputs=BOTH),
    Row("centernet (top-k)", CenterNet, images(), outputs=("scores", "sizes")),
)
