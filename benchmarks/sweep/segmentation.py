"""Segmentation: a class for every pixel."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from sweep.row import Row, images
from utils.export.networks.torchvision_models import import_torchvision

models = import_torchvision().models
CLASSES = 5


def _twice(a: int, b: int) -> nn.Sequential:
    layers = [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with transposed convolutions."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(a, b) for a, b in pairwise((3, *widths)))
        self.bottom = _twice(widths[-1], 2 * widths[-1])
        turned = widths[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in turned)
        self.join = nn.ModuleList(_twice(2 * w, w) for w in turned)
        self.head = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score per class and pixel."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, join, side in zip(self.up, self.join, reversed(kept), strict=True):
            x = join(torch.cat([side, up(x)], 1))
        return self.head(x)


class Only(nn.Module):
    """A module of torchvision's or transformers', and one of its outputs."""

    def __init__(self, inner: nn.Module, key: str) -> None:
        super().__init__()
        self.inner, self.key = inner, key

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        return self.inner(x)[self.key]


def _backbone() -> nn.Module:
    layers = models.mobilenet_v2(weights=None, width_mult=0.35).features
    return models._utils.IntermediateLayerGetter(layers, {"10": "out"})


def _deeplab() -> nn.Module:
    return Only(
        models.segmentation.DeepLabV3(_backbone(), models.segmentation.deeplabv3.DeepLabHead(24, CLASSES)), "out"
    )


def _fcn() -> nn.Module:
    return Only(models.segmentation.FCN(_backbone(), models.segmentation.fcn.FCNHead(24, CLASSES)), "out")


def _lraspp() -> nn.Module:
    return Only(models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES), "out")  # fmt: skip


def _segformer() -> nn.Module:
    import transformers

    config = transformers.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 24, 32, 48], decoder_hidden_size=32,
                                          num_attention_heads=[1, 2, 2, 4], num_labels=CLASSES)  # fmt: skip
    return Only(transformers.SegformerForSemanticSegmentation(config), "logits")


ROWS = (
    Row("u-net", UNet, images()),
    Row("deeplab v3", _deeplab, images()),
    Row("fcn", _fcn, images()),
    Row("lraspp", _lraspp, images()),
    Row("segformer", _segformer, images()),
)
