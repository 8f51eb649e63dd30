"""Classification networks for export: :class:`Classifier`, and torchvision's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.graphs import first_line
from utils.export.networks.random_weights import RANDOM as RANDOM, seeded
from utils.export.weight_files import is_weights_file, load_state, load_weights
from utils.imagenet_classes import WNIDS
from utils.stored import ImageNotes

Size = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True)
class Classifier:
    """A network in eval mode with its metadata.

    Attributes:
        module: N x 3 x H x W float32 to N x classes scores.
        images: image preprocessing; ``images.crop`` is the native size of the weights.
        size: height and width to export for. free: whether height and width are dynamic in the dynamic files.
        labels: class names in the order of the outputs, or ``None``.
        class_ids: WordNet ids of the classes, such as ``n01440764``, or ``None``.
        name: start of the file names. source: such as ``torchvision resnet50``.
        weights: such as ``IMAGENET1K_V2``, ``mine.pth`` or ``random``.
    """

    module: torch.nn.Module
    images: ImageNotes
    size: Size
    free: bool
    labels: Sequence[str] | None
    class_ids: Sequence[str] | None
    name: str
    source: str
    weights: str

    @property
    def preprocess(self) -> dict[str, Any]:
        """Preprocessing for :attr:`size`, for the metadata."""
        return plain(self.images.scaled(self.size))


def plain(scaled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of :meth:`~utils.stored.ImageNotes.scaled` as JSON values; one number for a square crop."""
    found: dict[str, Any] = {key: list(value) if isinstance(value, tuple) else value for key, value in scaled.items()}
    height, width = found["crop_shape"]
    return found | {"crop_shape": height if height == width else [height, width]}


_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets the operators when the Library object dies

_TRAINING_HEADS = ("AuxLogits.", "aux1.", "aux2.")
"""Key prefixes of GoogLeNet's and Inception v3's auxiliary training heads."""


def import_torchvision() -> ModuleType:
    """Import torchvision, also if its compiled operators do not load; raise TargetError if it is not installed.

    A wheel built for another torch (such as CUDA with a CPU torch) fails to import because the operators ``nms`` and
    ``qnms`` are missing. Declaring their schemas is sufficient; classification networks do not call them.
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
        del sys.modules[name]  # partially imported
    return importlib.import_module("torchvision")


def build(arch: str, weights: str) -> tuple[torch.nn.Module, Sequence[str], dict[str, Any]]:
    """Return a torchvision network in eval mode, its class labels and its preprocessing.

    Args:
        arch: name of a torchvision classification network, such as ``resnet50``.
        weights: a name of torchvision's weights for it (``IMAGENET1K_V2``; downloaded once), the path of a file with a
            state dict (:mod:`utils.export.weight_files`), or ``random``. The latter two get the labels and the
            preprocessing of the first published weights.

    Raises ConfigError: ``arch`` or the name in ``weights`` is unknown; ModelError: the download failed, or the file is
    missing or does not match.
    """
    found = classifier(arch, weights)
    return found.module, found.labels or (), found.preprocess


def classifier(arch: str, weights: str, size: Size | None = None) -> Classifier:
    """Return a torchvision network for a size (``None``: the weights'); errors of :func:`build`, and of the size."""
    models = import_torchvision().models
    known = models.list_models(module=models)
    if arch not in known:
        hint = did_you_mean(arch, known) or f" use one of {known}"
        raise ConfigError(f"unknown arch {arch!r};{hint}")
    published = models.get_model_weights(arch)
    named = next(iter(published))
    if weights != RANDOM and not is_weights_file(weights):
        named = published_weights(arch, weights, published)
    images = images_of(named)
    size = size or images.crop
    made = _Made(models, arch, images.crop, size)
    if weights == RANDOM:
        module = seeded(made, size if made.is_sized else None)
        weights_name = RANDOM
    elif is_weights_file(weights):
        module = made.sized(lambda model: load_weights(model, weights, _TRAINING_HEADS))
        weights_name = Path(weights).name
    else:
        module, weights_name = made.sized(partial(downloaded, arch, named)), named.name
    return Classifier(
        module=module.eval(),
        images=images,
        size=size,
        free=made.free,
        labels=named.meta["categories"],
        class_ids=WNIDS,
        name=arch,
        source=f"torchvision {arch}",
        weights=weights_name,
    )


def published_weights(arch: str, weights: str, published: Any) -> Any:
    """Return published weights by name."""
    if weights not in published.__members__:
        names = ", ".join(published.__members__)
        raise ConfigError(
            f"unknown weights {weights!r} for {arch};{did_you_mean(weights, published.__members__)} use {names}, "
            "random, or the path of a .pth or .safetensors file"
        )
    if published[weights].meta.get("categories") is None:
        raise ConfigError(f"weights {weights} of {arch} are features without a classifier; use DEFAULT")
    return published[weights]


def images_of(weights: Any) -> ImageNotes:
    """Return the preprocessing of published weights (``transforms()``)."""
    preset = weights.transforms()
    crop, resize = list(preset.crop_size), list(preset.resize_size)
    # for Pillow images "nearest-exact" is "nearest", and `antialias` is ignored
    return ImageNotes(
        resize=resize[0] if len(resize) == 1 else (resize[0], resize[1]),
        crop=(crop[0], crop[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        interpolation=preset.interpolation.value.partition("-")[0],
    )


class _Made:
    """Builds a network for a size; ``free``: it takes any size; ``is_sized``: it is built for one size."""

    def __init__(self, models: ModuleType, arch: str, own: Size, size: Size) -> None:
        self._models, self._arch, self._own, self._size = models, arch, own, size
        self._options: dict[str, Any] = {}
        self._kind = next((kind for kind in ("vit", "maxvit") if arch.startswith(f"{kind}_")), "")
        self.is_sized = bool(self._kind)
        # fixed cells in the head (AdaptiveAvgPool2d of 6 or 7) or windows over the whole image
        self.free = not arch.startswith(("alexnet", "maxvit_", "swin_", "vgg", "vit_"))
        if self._kind == "vit":
            if size[0] != size[1]:
                raise ConfigError(f"{arch} takes square images; --input_size {size[0]} {size[1]} is not one")
        elif self._kind == "maxvit":
            self._options = {"input_size": size}
        if arch in ("googlenet", "inception_v3"):
            # published weights expect images in -1..1, which transform_input does
            self._options = {"aux_logits": False, "init_weights": False, "transform_input": True}

    def __call__(self) -> torch.nn.Module:
        """Return the network with its initial weights."""
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
        """Return the network with weights of its native size; position embeddings are interpolated."""
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


def downloaded(arch: str, weights: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Load published weights into a network and return it; raise ModelError if the download fails."""
    try:
        state = weights.get_state_dict(progress=True, check_hash=True)
    except (OSError, RuntimeError) as error:  # network errors; a truncated file
        raise ModelError(
            f"cannot download {arch} {weights.name} ({first_line(error)}): no network: download {weights.url} "
            "elsewhere and pass --weights path.pth or --weights random"
        ) from error
    return load_state(model, state, f"{arch} {weights.name}", _TRAINING_HEADS)
