"""torchvision's segmentation networks as sources for an export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ConfigError, ModelError
from utils.export.graphs import first_line
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.torchvision_models import import_torchvision
from utils.export.weight_files import is_weights_file, load_state, read_state

ARCHS = (
    "deeplabv3_mobilenet_v3_large",
    "deeplabv3_resnet50",
    "deeplabv3_resnet101",
    "fcn_resnet50",
    "fcn_resnet101",
    "lraspp_mobilenet_v3_large",
)
"""torchvision's segmentation networks."""

AUXILIARY = "aux_classifier."
"""Keys of a second head, which only training uses."""

NOISE = (96, 96)
"""Height and width of the noise that random weights' statistics are taken of, in pixels."""

_HEADS = ("classifier.4.weight", "classifier.high_classifier.weight")
"""The weights of a network's last layer, whose first length is the number of classes."""


@dataclass(frozen=True)
class Segmenter:
    """A segmentation network in eval mode, and what its files say about it.

    Attributes:
        module: takes N x 3 x H x W float32, returns N x C x H x W logits.
        labels: class names in the order of the channels; ``None`` where they are not known.
        short_side: length its images' short side is resized to. mean, std: as torchvision normalises.
        weights: their name, such as ``mine.pth`` or ``random``.
    """

    module: torch.nn.Module
    labels: Sequence[str] | None
    short_side: int
    mean: Sequence[float]
    std: Sequence[float]
    weights: str


class Logits(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A torchvision network without its second head: the tensor ``out`` of the dictionary it returns."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the name of the file's input
        """Return N x C x H x W logits."""
        found: torch.Tensor = self.network(input)["out"]
        return found


def segmenter(arch: str, weights: str) -> Segmenter:
    """Return a torchvision network with its labels and its preprocessing.

    Args:
        arch: one of :data:`ARCHS`.
        weights: a name of torchvision's weights for it (``DEFAULT``; downloaded once), the path of a file with a state
            dict (:mod:`utils.export.weight_files`), whose last layer says the number of classes, or ``random``.

    Returns:
        The network; labels are those of the published weights, or ``None`` where the file has another number of
        classes.

    Raises:
        ConfigError: the name in ``weights`` is unknown.
        ModelError: the download failed, or the file is missing or does not fit.
    """
    models = import_torchvision().models
    published = models.get_model_weights(arch)
    named = next(iter(published))
    labels: Sequence[str] | None = named.meta["categories"]
    classes = len(named.meta["categories"])
    if weights == RANDOM:
        module = seeded(lambda: Logits(_made(models, arch, classes)), NOISE)
    elif is_weights_file(weights):
        state = read_state(weights)
        head = next((state[key] for key in state for end in _HEADS if key.endswith(end)), None)
        if head is None:
            raise ModelError(f"{weights}: holds no {' or '.join(_HEADS)}, so it is no {arch}; use the matching model")
        labels = labels if len(head) == classes else None
        module = Logits(load_state(_made(models, arch, len(head)), state, weights, (AUXILIARY,)))
    else:
        network, named = _downloaded(models, arch, weights, published)
        module = Logits(network)
    preset = named.transforms()
    return Segmenter(
        module.eval(),
        labels,
        preset.resize_size[0],
        list(preset.mean),
        list(preset.std),
        weights if weights == RANDOM else Path(weights).name if is_weights_file(weights) else named.name,
    )


def _made(models: ModuleType, arch: str, classes: int) -> torch.nn.Module:
    """Return a network with no weights of its own, neither published ones nor its backbone's."""
    made: torch.nn.Module = models.get_model(arch, weights=None, weights_backbone=None, num_classes=classes)
    return made


def _downloaded(models: ModuleType, arch: str, weights: str, published: Any) -> tuple[torch.nn.Module, Any]:
    if weights not in published.__members__:
        names = ", ".join(published.__members__)
        raise ConfigError(
            f"unknown weights {weights!r} for {arch}; use {names}, random, or the path of a .pth or .safetensors file"
        )
    named = published[weights]
    try:
        return models.get_model(arch, weights=named), named
    except (OSError, RuntimeError) as error:  # no route or name, a refused connection; a truncated file
        raise ModelError(
            f"cannot download {arch} {named.name} ({first_line(error)}): no network: download the file elsewhere and "
            "pass --weights path.pth or --weights random"
        ) from error
