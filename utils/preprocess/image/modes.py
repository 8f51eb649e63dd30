"""Names and defaults of the ways to decode, resize and normalise an image, importable without Pillow."""

from __future__ import annotations

from typing import Any

from tecoinfer_modelzoo.json_values import is_number

DECODES = ("exact", "fused", "reduced")
"""Ways to decode and crop a file, from exact to fast; see
:class:`~utils.preprocess.image.classification.ImagePreprocessor` for their exactness."""

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "box", "hamming", "lanczos")
"""torchvision's and Paddle's names of Pillow's filters; all but ``nearest`` antialias."""

RESIZE, CROP = 256, 224
"""Usual short side and crop of ImageNet's images, in pixels."""

MEAN = (0.485, 0.456, 0.406)
"""ImageNet's mean per RGB channel, of samples in 0..1."""
STD = (0.229, 0.224, 0.225)
"""ImageNet's standard deviation per RGB channel, of samples in 0..1."""


def channel_numbers(values: Any, name: str) -> tuple[float, ...] | None:
    """Return ``mean`` or ``std``, given as one number or one per channel; ``None`` if it is invalid.

    Numbers must be finite, and above 0 for ``std``.
    """
    numbers = tuple(values) if hasattr(values, "__len__") else (values,)
    fits = numbers and all(is_number(one, 3e38) and (name != "std" or one > 0) for one in numbers)
    return tuple(map(float, numbers)) if fits else None
