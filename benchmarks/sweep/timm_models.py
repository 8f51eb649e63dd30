"""Classifiers of timm, as small as its options make them; no rows where timm is not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn

from sweep.row import Row, images
from utils.export.networks.torchvision_models import import_torchvision

import_torchvision()  # timm needs it whole


def _named(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, **options)
        return model

    return build


def _of(module: str, kind: str, *sizes: int, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a class of timm's, where its named models cannot be made smaller."""

    def build() -> nn.Module:
        found: Any = getattr(import_module(f"timm.models.{module}"), kind)(*sizes, num_classes=10, **options)
        if isinstance(found.head, nn.Linear):
            nn.init.normal_(found.head.weight, std=0.1)  # some begin with zeros
        return found

    return build


_SMALL = {"img_size": 64, "depth": 2}

ALL = (
    Row("timm deit (distilled)", _named("deit_tiny_distilled_patch16_224", **_SMALL), images()),
    Row("timm mixer", _of("mlp_mixer", "MlpMixer", img_size=64, embed_dim=48, num_blocks=2), images()),
    Row("timm ghostnet", _named("ghostnet_050"), images()),
    Row("timm mobilevit", _named("mobilevit_xxs"), images()),
    Row("timm efficientvit", _named("efficientvit_b0"), images()),
    Row("timm edgenext", _named("edgenext_xx_small"), images()),
    Row("timm repvgg", _named("repvgg_a0"), images()),
    Row("timm poolformer", _of("metaformer", "MetaFormer", depths=(1, 1, 1, 1), dims=(16, 32, 48, 64)), images()),
    Row("timm xcit", _named("xcit_nano_12_p16_224", **_SMALL), images()),
    Row("timm pvt v2", _named("pvt_v2_b0"), images()),
    Row("timm nf-regnet", _named("nf_regnet_b0"), images()),
    Row("timm levit", _named("levit_128s", img_size=64), images()),
    Row("timm convmixer", _of("convmixer", "ConvMixer", 64, 3, kernel_size=5), images()),
    Row("timm mobilenet v4", _named("mobilenetv4_conv_small"), images()),
    Row(
        "timm eva02",
        _named("eva02_tiny_patch14_224", img_size=56, depth=2),
        images(56),
        refusals={"torchscript/export": "argument 'is_causal' must be bool, not Tensor"},
    ),
)
ROWS = ALL if find_spec("timm") else ()
