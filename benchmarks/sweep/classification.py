"""torchvision's families of classifiers, small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sweep.row import Row, pictures
from utils.export.networks.torchvision_models import import_torchvision

models = import_torchvision().models
CLASSES = 10


def _named(name: str, **options: Any) -> Callable[[], nn.Module]:
    return partial(models.get_model, name, weights=None, num_classes=CLASSES, **options)


def _resnet(block: Any, **options: Any) -> Callable[[], nn.Module]:
    return partial(models.ResNet, block, [1, 1, 1, 1], num_classes=CLASSES, **options)


def _vgg() -> nn.Module:
    layers = models.vgg.make_layers([16, "M", 32, "M", 48, 48, "M", 64, 64, "M"], batch_norm=True)
    net = models.VGG(layers, num_classes=CLASSES)
    net.classifier = nn.Sequential(nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, CLASSES))
    return net


def _vit() -> nn.Module:
    net = models.VisionTransformer(64, 16, 3, 4, 64, 128, num_classes=CLASSES)
    nn.init.normal_(net.heads.head.weight, std=0.1)  # zeros as published
    return net


def _convnext() -> nn.Module:
    block = models.convnext.CNBlockConfig
    settings = [block(16, 32, 1), block(32, 48, 1), block(48, 64, 2), block(64, None, 1)]
    return models.ConvNeXt(settings, layer_scale=0.5, num_classes=CLASSES)


def _swin(version: int) -> nn.Module:
    block = models.swin_transformer.SwinTransformerBlockV2 if version == 2 else None
    merge = models.swin_transformer.PatchMergingV2 if version == 2 else models.swin_transformer.PatchMerging
    return models.SwinTransformer(
        [4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=CLASSES, block=block, downsample_layer=merge
    )


def _maxvit() -> nn.Module:
    return models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=CLASSES)


BASIC, BOTTLENECK = models.resnet.BasicBlock, models.resnet.Bottleneck

ROWS = (
    Row("resnet (basic)", _resnet(BASIC), pictures()),
    Row("resnext", _resnet(BOTTLENECK, groups=4, width_per_group=8), pictures()),
    Row("vgg (batch norm)", _vgg, pictures(112)),
    Row("squeezenet", _named("squeezenet1_1"), pictures()),
    Row("densenet", partial(models.DenseNet, 8, (2, 2, 2), 16, num_classes=CLASSES), pictures()),
    Row("googlenet", _named("googlenet", aux_logits=False, init_weights=False), pictures()),
    Row("mobilenet v2", _named("mobilenet_v2", width_mult=0.35), pictures()),
    Row("mobilenet v3", _named("mobilenet_v3_small"), pictures()),
    Row("shufflenet v2", _named("shufflenet_v2_x0_5"), pictures()),
    Row("mnasnet", _named("mnasnet0_5"), pictures()),
    Row("efficientnet b0", _named("efficientnet_b0"), pictures()),
    Row("regnet y", _named("regnet_y_400mf"), pictures()),
    Row("convnext", _convnext, pictures()),
    Row("vision transformer", _vit, pictures()),
    Row("swin", partial(_swin, 1), pictures()),
    Row("swin v2", partial(_swin, 2), pictures()),
    Row("maxvit", _maxvit, pictures()),
)
