"""What PyTorch's and Paddle's classification preprocessing share: everything but where the crop begins.

Both frameworks resize with Pillow's antialiased bilinear filter, divide by 255, and subtract and divide in float32 with
ImageNet's mean and standard deviation, so one table of 256 values per channel holds every result bit by bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine.base import DTYPES, ConfigError, DataError
from utils.preprocess.images import open_image, to_rgb

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Picture: TypeAlias = "str | os.PathLike[str] | Image.Image"
Shape: TypeAlias = "int | Sequence[int]"
CropStart: TypeAlias = Callable[[int, int], int]
"""Where a crop begins along one axis, from the picture's and the crop's extent; negative pads."""

MEAN = (0.485, 0.456, 0.406)
"""ImageNet's mean per RGB channel, of samples in 0..1."""
STD = (0.229, 0.224, 0.225)
"""ImageNet's standard deviation per RGB channel, of samples in 0..1."""


def preprocess_pictures(
    pictures: Picture | Sequence[Picture], dtype: str, resize_shape: Shape, crop_shape: Shape, crop_start: CropStart
) -> Array:
    """Resize, crop and normalise pictures straight into one N x 3 x H x W array of ``dtype``.

    Args:
        pictures: a path, a PIL image, or a sequence of either.
        dtype: ``"float16"`` (the float32 result rounded once) or ``"float32"``.
        resize_shape: length of the short side in pixels, or ``(height, width)``.
        crop_shape: side of the square crop in pixels, or ``(height, width)``; a smaller picture is padded with black.
        crop_start: the framework's rule for where the crop begins.

    Raises:
        ConfigError: an unknown dtype or an impossible shape.
        DataError: no picture, an element that is neither path nor picture, or one that cannot be decoded.
    """
    resize, crop = _lengths(resize_shape, "resize_shape"), _lengths(crop_shape, "crop_shape")
    height, width = crop if len(crop) == 2 else crop * 2
    table = _table(dtype)
    batch = _listed(pictures)
    result = np.empty((len(batch), 3, height, width), table.dtype)
    for index, picture in enumerate(batch):
        name = f"picture {index}" if isinstance(picture, Image.Image) else str(picture)
        image = _resized(_decoded(picture, name), resize, name)
        left, top = crop_start(image.width, width), crop_start(image.height, height)
        cropped = image.crop((left, top, left + width, top + height))
        for channel, plane in enumerate(cropped.split()):
            # mode="clip" never clips a uint8 index here; it spares the copy of `out` that the default makes
            np.take(table[channel], np.asarray(plane), out=result[index, channel], mode="clip")
    return result


def _listed(pictures: Picture | Sequence[Picture]) -> Sequence[Picture]:
    """Return the batch as a sequence with at least one element."""
    if isinstance(pictures, (str, os.PathLike, Image.Image)):
        return [pictures]
    if not isinstance(pictures, Sequence):
        raise DataError(f"cannot preprocess a {type(pictures).__name__}; pass a path, a PIL image, or a list of either")
    if not pictures:
        raise DataError("cannot preprocess an empty list; pass at least one path or PIL image")
    return pictures


def _decoded(picture: Picture, name: str) -> Image.Image:
    if isinstance(picture, Image.Image):
        return to_rgb(picture, name)
    if isinstance(picture, (str, os.PathLike)):
        return open_image(picture)
    raise DataError(f"cannot preprocess a {type(picture).__name__} in the list; pass paths or PIL images")


def _resized(image: Image.Image, shape: tuple[int, ...], name: str) -> Image.Image:
    """Resize as torchvision.transforms.Resize and paddle.vision.transforms.Resize do; both truncate the long side."""
    if len(shape) == 2:
        height, width = shape
    elif image.width <= image.height:
        width, height = shape[0], int(shape[0] * image.height / image.width)
    else:
        width, height = int(shape[0] * image.width / image.height), shape[0]
    if (width, height) == image.size:
        return image
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:  # a 1 x 100000 strip would need gigabytes
        raise DataError(
            f"{name}: {image.width}x{image.height} would be resized to {width}x{height}, over the limit of {limit}"
            " pixels; crop it first, or pass resize_shape as (height, width)"
        )
    return image.resize((width, height), Image.Resampling.BILINEAR)


@cache
def _table(dtype: str) -> Array:
    """Return every sample's normalised value, 3 x 256: in float32 as both frameworks compute it, then rounded once."""
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}; use one of: {', '.join(DTYPES)}")
    samples = np.arange(256, dtype=np.float32) / np.float32(255)
    mean, std = (np.array(values, np.float32)[:, None] for values in (MEAN, STD))
    table = ((samples - mean) / std).astype(dtype)
    table.setflags(write=False)
    return table


def _lengths(shape: Shape, name: str) -> tuple[int, ...]:
    """Return one or two positive lengths in pixels."""
    lengths = (
        (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape) if isinstance(shape, (list, tuple)) else ()
    )
    if len(lengths) not in (1, 2) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in lengths
    ):
        raise ConfigError(
            f"{name}={shape!r} must be a positive whole number of pixels, or a (height, width) pair of them"
        )
    return tuple(int(length) for length in lengths)
