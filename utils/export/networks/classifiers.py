"""A classification network to export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from utils.stored import ImageNotes

if TYPE_CHECKING:
    import torch

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
