"""torchvision's classification networks as sources for an export."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.graphs import first_line
from utils.export.networks.classifiers import Classifier, Size, plain
from utils.export.networks.random_weights import RANDOM as RANDOM, seeded
from utils.export.weight_files import is_weights_file, load_state, load_weights
from utils.imagenet_classes import WNIDS
from utils.stored import PictureNotes

_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets the operators when the Library object dies

_TRAINING_HEADS = ("AuxLogits.", "aux1.", "aux2.")
"""Keys of GoogLeNet's and Inception v3's second heads, which only training uses."""


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
        weights: a name of torchvision's weights for it (``IMAGENET1K_V2``; downloaded once), the path of a file with a
            state dict (:mod:`utils.export.weight_files`), or ``random``.

    Returns:
        The module, its ImageNet labels, and ``resize_shape``, ``crop_shape``, ``mean``, ``std``, ``interpolation``.
        Weights from a file and random ones get the preprocessing of the network's first published weights.

    Raises:
        ConfigError: ``arch`` or the name in ``weights`` is unknown.
        ModelError: the download failed, or the file is missing or does not fit.
    """
    found = classifier(arch, weights)
    return found.module, found.labels or (), found.preprocess


def classifier(arch: str, weights: str, size: Size | None = None) -> Classifier:
    """Return a torchvision network for pictures of a size; ``None``: of the size of its weights' own transforms.

    Raises:
        ConfigError: ``arch`` or the name in ``weights`` is unknown, or the network cannot be built for the size.
        ModelError: the download failed, or the file is missing or does not fit.
    """
    models = import_torchvision().models
    known = models.list_models(module=models)
    if arch not in known:
        hint = did_you_mean(arch, known) or f" use one of {known}"
        raise ConfigError(f"unknown arch {arch!r};{hint}")
    published = models.get_model_weights(arch)
    named = next(iter(published))
    if weights != RANDOM and not is_weights_file(weights):
        named = _named(arch, weights, published)
    pictures = pictures_of(named)
    size = size or pictures.crop
    made = _Made(models, arch, pictures.crop, size)
    if weights == RANDOM:
        module = seeded(made, size if made.is_sized else None)
        weights_name = RANDOM
    elif is_weights_file(weights):
        module = made.sized(lambda model: load_weights(model, weights, _TRAINING_HEADS))
        weights_name = Path(weights).name
    else:
        module, weights_name = made.sized(partial(_downloaded, arch, named)), named.name
    return Classifier(
        module=module.eval(),
        pictures=pictures,
        size=size,
        free=made.free,
        labels=named.meta["categories"],
        class_ids=WNIDS,
        name=arch,
        source=f"torchvision {arch}",
        weights=weights_name,
    )


def _named(arch: str, weights: str, published: Any) -> Any:
    """Return published weights by their name."""
    if weights not in published.__members__:
        names = ", ".join(published.__members__)
        raise ConfigError(
            f"unknown weights {weights!r} for {arch};{did_you_mean(weights, published.__members__)} use {names}, "
            "random, or the path of a .pth or .safetensors file"
        )
    if published[weights].meta.get("categories") is None:
        raise ConfigError(f"weights {weights} of {arch} are features without a classifier; use DEFAULT")
    return published[weights]


def pictures_of(weights: Any) -> PictureNotes:
    """Return the preprocessing torchvision publishes with these weights: their ``transforms()`` as plain numbers."""
    preset = weights.transforms()
    crop, resize = _sides(preset.crop_size), _sides(preset.resize_size)
    # of pictures as Pillow holds them "nearest-exact" is "nearest", and `antialias` is ignored
    return PictureNotes(
        resize=resize[0] if len(resize) == 1 else (resize[0], resize[1]),
        crop=(crop[0], crop[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        interpolation=preset.interpolation.value.partition("-")[0],
    )


def _described(weights: Any) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the class labels and the preprocessing torchvision publishes with these weights."""
    return weights.meta["categories"], plain(pictures_of(weights).scaled())


def _sides(sizes: Sequence[int]) -> list[int]:
    """Return a preset's one length, or its height and width."""
    return list(sizes)


class _Made:
    """Makes a network for a size: some are built for theirs.

    Attributes:
        free: whether the network takes any height and width as it is exported.
        is_sized: whether it is built for one size.
    """

    def __init__(self, models: ModuleType, arch: str, own: Size, size: Size) -> None:
        self._models, self._arch, self._own, self._size = models, arch, own, size
        self._options: dict[str, Any] = {}
        self._kind = next((kind for kind in ("vit", "maxvit") if arch.startswith(f"{kind}_")), "")
        self.is_sized = bool(self._kind)
        # fixed places in the head (AdaptiveAvgPool2d of 6 or 7 cells) or windows over the whole picture
        self.free = not arch.startswith(("alexnet", "maxvit_", "swin_", "vgg", "vit_"))
        if self._kind == "vit":
            if size[0] != size[1]:
                raise ConfigError(f"{arch} takes square pictures; --input_size {size[0]} {size[1]} is not one")
        elif self._kind == "maxvit":
            self._options = {"input_size": size}
        if arch in ("googlenet", "inception_v3"):
            # published weights expect pictures scaled to -1..1, which the network does itself with transform_input
            self._options = {"aux_logits": False, "init_weights": False, "transform_input": True}

    def __call__(self) -> torch.nn.Module:
        """Return the network with the weights it is made with."""
        return self._at(self._size)

    def _at(self, size: Size) -> torch.nn.Module:
        options = self._options | ({"image_size": size[0]} if self._kind == "vit" else {})
        try:
            made: torch.nn.Module = self._models.get_model(self._arch, weights=None, **options)
        except (AssertionError, RuntimeError, ValueError) as error:
            height, width = size
            reason = " ".join(first_line(error).split())
            raise ConfigError(
                f"{self._arch} cannot be built for --input_size {height} {width} ({reason.rstrip('.')}); leave it out "
                f"for the weights' own {self._own[0]} x {self._own[1]}"
            ) from error
        return made

    def sized(self, filled: Any) -> torch.nn.Module:
        """Return the network for the size with weights that are made for its own: positions are interpolated."""
        if self._kind != "vit" or self._size == self._own:
            found: torch.nn.Module = filled(self())
            return found
        native = filled(self._at(self._own))
        grown = self._models.vision_transformer.interpolate_embeddings(
            self._size[0], native.patch_size, native.state_dict()
        )
        made = self()
        made.load_state_dict(grown)
        return made


def _downloaded(arch: str, weights: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Fill a network with published weights."""
    try:
        state = weights.get_state_dict(progress=True, check_hash=True)
    except (OSError, RuntimeError) as error:  # no route or name, a refused connection; a truncated file
        raise ModelError(
            f"cannot download {arch} {weights.name} ({first_line(error)}): no network: download the file elsewhere and "
            "pass --weights path.pth or --weights random"
        ) from error
    return load_state(model, state, f"{arch} {weights.name}", _TRAINING_HEADS)
