"""torchvision's segmentation networks for export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ModelError
from utils.export.graphs import first_line
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.torchvision_models import import_torchvision, published_weights
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
"""Key prefix of the auxiliary training head."""

NOISE = (96, 96)
"""Height and width of the noise for the statistics of random weights, in pixels."""

_HEADS = ("classifier.4.weight", "classifier.high_classifier.weight")
"""Weights of the last layer, whose first dimension is the number of classes."""


@dataclass(frozen=True)
class Segmenter:
    """A segmentation network in eval mode with its metadata.

    Attributes:
        module: N x 3 x H x W float32 to N x C x H x W logits.
        labels: class names in the order of the channels, or ``None``.
        short_side: length to resize the short side of images to. mean, std: for samples in 0..1.
        weights: such as ``mine.pth`` or ``random``.
    """

    module: torch.nn.Module
    labels: Sequence[str] | None
    short_side: int
    mean: Sequence[float]
    std: Sequence[float]
    weights: str


class Logits(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A torchvision network that returns only the logits ``out``."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the name of the file's input
        """Return N x C x H x W logits."""
        found: torch.Tensor = self.network(input)["out"]
        return found


def segmenter(arch: str, weights: str) -> Segmenter:
    """Return a torchvision network (``arch``: one of :data:`ARCHS`) with its labels and preprocessing.

    ``weights`` and errors are as of :func:`~utils.export.networks.torchvision_models.build` (``DEFAULT``: downloaded
    once). Labels are ``None`` for a file with another number of classes than the published weights.
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
            raise ModelError(f"{weights}: does not contain {' or '.join(_HEADS)} of {arch}; use the matching model")
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
    """Return a network without published weights, also of the backbone."""
    made: torch.nn.Module = models.get_model(arch, weights=None, weights_backbone=None, num_classes=classes)
    return made


def _downloaded(models: ModuleType, arch: str, weights: str, published: Any) -> tuple[torch.nn.Module, Any]:
    named = published_weights(arch, weights, published)
    try:
        return models.get_model(arch, weights=named), named
    except (OSError, RuntimeError) as error:  # network errors; a truncated file
        raise ModelError(
            f"cannot download {arch} {named.name} ({first_line(error)}): no network: download the file elsewhere and "
            "pass --weights path.pth or --weights random"
        ) from error
