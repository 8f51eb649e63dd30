"""The ways to decode, resize and normalise a picture, in a module the command line may import without Pillow."""

from __future__ import annotations

from typing import Any

from tecoinfer_modelzoo.json_values import is_number

DECODES = ("exact", "fused", "reduced")
"""Ways from file to cropped picture, from exact to fast; ``classification_common.preprocess_pictures`` states their
exactness."""

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "box", "hamming", "lanczos")
"""Filters to resize with, by the names torchvision and Paddle give to Pillow's; all but ``nearest`` antialias."""

RESIZE, CROP = 256, 224
"""The usual short side and the usual crop of ImageNet's pictures, in pixels."""

MEAN = (0.485, 0.456, 0.406)
"""ImageNet's mean per RGB channel, of samples in 0..1."""
STD = (0.229, 0.224, 0.225)
"""ImageNet's standard deviation per RGB channel, of samples in 0..1."""


def channel_numbers(values: Any, name: str) -> tuple[float, ...] | None:
    """Return ``mean`` or, above 0, ``std``, given as a number or one per channel; ``None`` where it cannot be one."""
    numbers = tuple(values) if hasattr(values, "__len__") else (values,)
    fits = numbers and all(is_number(one, 3e38) and (name != "std" or one > 0) for one in numbers)
    return tuple(map(float, numbers)) if fits else None
