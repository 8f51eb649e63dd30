"""Networks for dense regression: depth of one image by MiDaS, DPT and Depth Anything, disparity of two by PSMNet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError
from utils.export.networks.transformers_detectors import pretrained, read_json, transformers
from utils.export.networks.vision import midas, psmnet
from utils.export.networks.vision.architecture import IMAGENET, Architecture, Asked
from utils.export.networks.vision.picked import Picked

HALF = ((0.5,) * 3, (0.5,) * 3)
"""Mean and standard deviation of DPT's inputs."""

INVERSE = {"dense_regression": {"quantity": "depth", "relation": "inverse", "align": "scale_shift"}}
"""Metadata of networks of inverse depth up to scale and shift."""

METRES = {"dense_regression": {"quantity": "depth", "relation": "same", "align": "none"}}
DISPARITY = {"dense_regression": {"quantity": "disparity", "view_order": "left_right"}}


def _midas(build: Any, side: int) -> Architecture:
    return Architecture(
        build=lambda asked: build(),
        source="MiDaS v2.1 of isl-org/MiDaS",
        size=(side, side), multiple=32, outputs=("inverse_depth",), interpolation="bicubic",
        notes=lambda asked: INVERSE, without_norms=("scratch",), clipped="scratch.output_conv.4",
    )  # fmt: skip


def _transformer(kind: str, build: Any, patch: int, side: int, scale: Any, notes: Mapping[str, Any]) -> Architecture:
    """Return an architecture of transformers whose answer has ``predicted_depth``."""
    return Architecture(
        build=build,
        source=f"transformers {kind}",
        size=(side, side), multiple=patch, outputs=("inverse_depth" if notes is INVERSE else "depth",),
        scale=scale, interpolation="bicubic", notes=lambda asked: notes,
        exported=lambda made: Picked(made, "predicted_depth"),
        without_norms=("neck", "head"), clipped="head.head.4" if kind == "dpt" else "head.conv3",
    )  # fmt: skip


_DPT_LARGE = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "backbone_out_indices": [5, 11, 17, 23], "neck_hidden_sizes": [256, 512, 1024, 1024],
}  # fmt: skip


def _dpt(asked: Asked) -> torch.nn.Module:
    found = transformers()
    made: torch.nn.Module = found.DPTForDepthEstimation(found.DPTConfig(**_DPT_LARGE))
    return made


PATCH, NATIVE = 14, 518
"""Sides of Depth Anything's patches, and of the images its positions were trained for."""

_SIZES = {
    "small": (384, 12, 6, 64, [48, 96, 192, 384]),
    "base": (768, 12, 12, 128, [96, 192, 384, 768]),
    "large": (1024, 24, 16, 256, [256, 512, 1024, 1024]),
}
"""Channels, layers and heads of DINOv2; channels of the fusion and of the levels."""

_LEVELS = {
    "depth_anything": {"small": [9, 10, 11, 12], "base": [9, 10, 11, 12], "large": [21, 22, 23, 24]},
    "depth_anything_v2": {"small": [3, 6, 9, 12], "base": [3, 6, 9, 12], "large": [5, 12, 18, 24]},
}
"""Layers of DINOv2 whose outputs are used."""


def _depth_anything(version: str, size: str, asked: Asked) -> torch.nn.Module:
    found = transformers()
    channels, layers, heads, fusion, levels = _SIZES[size]
    body = found.Dinov2Config(
        hidden_size=channels, num_hidden_layers=layers, num_attention_heads=heads, image_size=NATIVE, patch_size=PATCH,
        out_indices=_LEVELS[version][size], apply_layernorm=True, reshape_hidden_states=False,
    )  # fmt: skip
    config = found.DepthAnythingConfig(
        backbone_config=body, reassemble_hidden_size=channels, patch_size=PATCH, fusion_hidden_size=fusion,
        neck_hidden_sizes=levels,
    )  # fmt: skip
    made: torch.nn.Module = found.DepthAnythingForDepthEstimation(config)
    return made


def _psmnet(asked: Asked) -> torch.nn.Module:
    if asked.disparities < psmnet.MULTIPLE or asked.disparities % psmnet.MULTIPLE:
        raise ConfigError(f"--disparities {asked.disparities} must be a positive multiple of {psmnet.MULTIPLE}")
    return psmnet.PsmNet(asked.disparities)


ARCHS: dict[str, Architecture] = {
    "midas_v21_small": _midas(midas.small, 256),
    "midas_v21": _midas(midas.large, 384),
    "dpt_large": _transformer("dpt", _dpt, 16, 384, HALF, INVERSE),
    **{
        f"{version}_{size}": _transformer(
            version, partial(_depth_anything, version, size), PATCH, NATIVE, IMAGENET, INVERSE
        )
        for version in _LEVELS
        for size in _SIZES
    },
    "psmnet": Architecture(
        build=_psmnet,
        source="PSMNet of JiaRenChang/PSMNet",
        size=(256, 512), multiple=psmnet.MULTIPLE, least=psmnet.LEAST,
        inputs=("left", "right"), outputs=("disparity",), notes=lambda asked: DISPARITY,
    ),
}  # fmt: skip
"""Networks by name; depths, channels and layers of those of transformers are those of their publications."""

KINDS = ("depth_anything", "dpt")
"""Kinds of models of transformers (``model_type``) in folders."""


def from_folder(folder: str) -> Architecture:
    """Return DPT or Depth Anything with the configuration and the weights in a folder of transformers'
    ``save_pretrained``; sizes, mean and standard deviation are those of its ``preprocessor_config.json``.

    Raises ConfigError or ModelError if it has another model or is damaged.
    """
    made = pretrained(folder, "AutoModelForDepthEstimation")
    config = made.config
    if config.model_type not in KINDS:
        raise ConfigError(f"--weights {folder}: a {config.model_type}; use {' or '.join(KINDS)}")
    found = read_json(Path(folder, "preprocessor_config.json"))
    size = found.get("size")
    size = size.get("height") if isinstance(size, Mapping) else size
    native = _first(getattr(config.backbone_config, "image_size", None), getattr(config, "image_size", None), 384)
    patch = _first(getattr(config.backbone_config, "patch_size", None), getattr(config, "patch_size", None), 16)
    usual = HALF if config.model_type == "dpt" else IMAGENET
    scale = (found.get("image_mean", usual[0]), found.get("image_std", usual[1]))
    notes = METRES if getattr(config, "depth_estimation_type", "relative") == "metric" else INVERSE
    return _transformer(config.model_type, lambda asked: made, patch, _first(size, native), scale, notes)


def _first(*values: Any) -> int:
    """Return the first positive whole number."""
    return next(value for value in values if isinstance(value, int) and value > 0)
