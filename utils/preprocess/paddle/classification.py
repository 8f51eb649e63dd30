"""A classifier's preprocessing as paddle.vision.transforms does it with its PIL backend, without importing paddle.

PaddleClas deploys with another convention (OpenCV's bilinear filter, which does not antialias, on a rounded size). It
is not this one: the pixels of a shrunk picture differ between the two, and a model's metric may too.
"""

from __future__ import annotations

from collections.abc import Sequence

from utils.preprocess.image.classification import MEAN, STD, Array, Channels, Picture, Shape, preprocess_pictures
from utils.preprocess.image.modes import CROP, RESIZE

__all__ = ["preprocess"]


def preprocess(
    image_path: Picture | Sequence[Picture],
    dtype: str = "float16",
    resize_shape: Shape = RESIZE,
    crop_shape: Shape = CROP,
    *,
    out: Array | None = None,
    decode: str = "exact",
    mean: Channels = MEAN,
    std: Channels = STD,
    interpolation: str = "bilinear",
) -> Array:
    """Turn pictures into a model's input, as Paddle's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` would.

    Equal bit by bit to ``paddle.vision.transforms`` on RGB PIL images in float32; float16 is that, rounded once. It
    differs from the PyTorch preprocessing only where a picture smaller than the crop needs an odd number of padding
    pixels.

    Arguments, result and errors: :func:`utils.preprocess.pytorch.classification.preprocess` has them.
    """
    return preprocess_pictures(
        image_path,
        dtype,
        resize_shape,
        crop_shape,
        _crop_start,
        out=out,
        decode=decode,
        mean=mean,
        std=std,
        interpolation=interpolation,
    )


def _crop_start(length: int, crop: int) -> int:
    """Return paddle's center_crop offset; a negative half pixel too is rounded to even."""
    return round((length - crop) / 2)
