"""torchvision's families of classifiers, small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sweep.row import Row, images
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
    Row("resnet (basic)", _resnet(BASIC), images()),
    Row("resnext", _resnet(BOTTLENECK, groups=4, width_per_group=8), images()),
    Row("vgg (batch norm)", _vgg, images(112)),
    Row("squeezenet", _named("squeezenet1_1"), images()),
    Row("densenet", partial(models.DenseNet, 8, (2, 2, 2), 16, num_classes=CLASSES), images()),
    Row("googlenet", _named("googlenet", aux_logits=False, init_weights=False), images()),
    Row("mobilenet v2", _named("mobilenet_v2", width_mult=0.35), images()),
    Row("mobilenet v3", _named("mobilenet_v3_small"), images()),
    Row("shufflenet v2", _named("shufflenet_v2_x0_5"), images()),
    Row("mnasnet", _named("mnasnet0_5"), images()),
    Row("efficientnet b0", _named("efficientnet_b0"), images()),
    Row("regnet y", _named("regnet_y_400mf"), images()),
    Row("convnext", _convnext, images()),
    Row("vision transformer", _vit, images()),
    Row("swin", partial(_swin, 1), images()),
    Row("swin v2", partial(_swin, 2), images()),
    Row("maxvit", _maxvit, images()),
)
