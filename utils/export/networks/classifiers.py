"""A classification network as the source of an export, wherever it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from utils.stored import ImageNotes

if TYPE_CHECKING:
    import torch

Size = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True)
class Classifier:
    """A network in eval mode, and what its files say about it.

    Attributes:
        module: takes N x 3 x H x W float32, returns N x classes scores.
        images: how images become its input; ``images.crop`` is the size its weights were made for.
        size: height and width that it is exported for.
        free: whether it takes images of other heights and widths too; else only its batch is open.
        labels: class names in the order of its outputs; ``None`` where they are not known.
        class_ids: WordNet ids of the classes, such as ``n01440764``; ``None`` where they are not known.
        name: start of its files' names. source: what it is, such as ``torchvision resnet50``.
        weights: the name of its weights, such as ``IMAGENET1K_V2``, ``mine.pth`` or ``random``.
        said: lines for whoever exports it.
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
    said: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def preprocess(self) -> dict[str, Any]:
        """The preprocessing for :attr:`size`, as a file stores it."""
        return plain(self.images.scaled(self.size))


def plain(scaled: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :meth:`~utils.stored.ImageNotes.scaled` returns as JSON has it: one number for equal sides."""
    found: dict[str, Any] = {key: list(value) if isinstance(value, tuple) else value for key, value in scaled.items()}
    height, width = found["crop_shape"]
    return found | {"crop_shape": height if height == width else [height, width]}
