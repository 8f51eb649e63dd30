"""torchvision's classification networks as sources for an export."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ConfigError, ModelError, TargetError, did_you_mean
from tecoinfer_modelzoo import install_command
from utils.export.graphs import first_line
from utils.export.torch_export import load_weights

RANDOM = "random"
"""The ``weights`` that need no file: seeded noise, for functional and speed checks only."""

RESIDUAL_SCALE = 0.25
"""Scale of a residual block's last batch norm under random weights."""

_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets the operators when the Library object dies


def import_torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators do not load.

    A torchvision wheel built for another torch build (a CUDA one beside the CPU torch, say) refuses to import because
    it cannot find the detection operators ``nms`` and ``qnms`` it decorates. Declaring their schemas is enough to
    import it; classification networks never call them.

    Raises:
        TargetError: torchvision is not installed.
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        raise TargetError(f"{error.name} is not installed; run: {install_command('torch')}") from error
    except RuntimeError as error:
        if not any(f"torchvision::{name} does not exist" in str(error) for name in _OPERATORS):
            raise
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported by the failed try
    return importlib.import_module("torchvision")


def build(arch: str, weights: str) -> tuple[torch.nn.Module, Sequence[str], dict[str, Any]]:
    """Return a torchvision network in eval mode, its class labels and its preprocessing.

    Args:
        arch: name of a torchvision classification network, such as ``resnet50``.
        weights: a name of torchvision's weights for it (``IMAGENET1K_V2``; downloaded once), the path of a ``.pth``
            file with a state dict, or ``random``.

    Returns:
        The module, its ImageNet labels, and ``resize_shape``, ``crop_shape``, ``mean``, ``std``, ``interpolation``.
        Weights from a file and random ones get the preprocessing of the network's first published weights.

    Raises:
        ConfigError: ``arch`` or the name in ``weights`` is unknown.
        ModelError: the download failed, or the file is missing or does not fit.
    """
    torchvision = import_torchvision()
    known = torchvision.models.list_models(module=torchvision.models)
    if arch not in known:
        hint = did_you_mean(arch, known) or f" use one of {known}"
        raise ConfigError(f"unknown arch {arch!r};{hint}")
    published = torchvision.models.get_model_weights(arch)
    if weights == RANDOM:
        return _random(torchvision, arch), *_described(next(iter(published)))
    if weights.endswith((".pth", ".pt")) or Path(weights).is_file():
        model = load_weights(torchvision.models.get_model(arch, weights=None).eval(), weights)
        return model, *_described(next(iter(published)))
    if weights not in published.__members__:
        names = ", ".join(published.__members__)
        raise ConfigError(f"unknown weights {weights!r} for {arch}; use {names}, random, or the path of a .pth file")
    return _downloaded(torchvision, arch, published[weights]), *_described(published[weights])


def _described(weights: Any) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the class labels and the preprocessing torchvision publishes with these weights."""
    preset = weights.transforms()
    sizes = {"resize_shape": _side(preset.resize_size), "crop_shape": _side(preset.crop_size)}
    # of pictures as Pillow holds them "nearest-exact" is "nearest", and `antialias` is ignored
    scale = {"mean": list(preset.mean), "std": list(preset.std)}
    return weights.meta["categories"], sizes | scale | {"interpolation": preset.interpolation.value.partition("-")[0]}


def _side(sizes: Sequence[int]) -> int | list[int]:
    """Return a preset's one length, or its height and width."""
    return sizes[0] if len(sizes) == 1 else list(sizes)


def _downloaded(torchvision: ModuleType, arch: str, weights: Any) -> torch.nn.Module:
    try:
        return torchvision.models.get_model(arch, weights=weights).eval()
    except (OSError, RuntimeError) as error:  # no route or name, a refused connection; a truncated file
        raise ModelError(
            f"cannot download {arch} {weights.name} ({first_line(error)}): no network: download the file elsewhere and "
            "pass --weights path.pth or --weights random"
        ) from error


def _random(torchvision: ModuleType, arch: str) -> torch.nn.Module:
    """Return seeded random weights that float16 can be judged on.

    Fresh weights make activations grow from block to block, and a deep stack of them amplifies any rounding a
    hundredfold, as trained weights do not. So the batch norms take the statistics of a batch of noise, and the last one
    of every residual block is scaled down, which keeps the network near to its shortcuts.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model: torch.nn.Module = torchvision.models.get_model(arch, weights=None)
        norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0  # take the statistics of the one batch that follows
        for module in model.modules():
            if isinstance(module, torchvision.models.resnet.Bottleneck):
                module.bn3.weight.fill_(RESIDUAL_SCALE)
            elif isinstance(module, torchvision.models.resnet.BasicBlock):
                module.bn2.weight.fill_(RESIDUAL_SCALE)
        if norms:
            model.train()(torch.randn(2, 3, 224, 224))
    return model.eval()
