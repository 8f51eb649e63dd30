"""Input of the historical preprocessing of detectors: files, images, or a batch of a data loader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError, InputError
from tecoinfer_modelzoo.text import shape_text
from utils.preprocess.image.images import open_image, to_rgb
from utils.preprocess.image.letterbox import USUAL, Placement, letterbox
from utils.torch_array import as_array, is_tensor

ImageSource: TypeAlias = "str | os.PathLike[str] | Image.Image | Array"
"""A file, a PIL image, or height x width x 3 uint8."""


def levels_of(images: Any, size: tuple[int, int], laying: Placement = USUAL) -> Array:
    """Return images as N x 3 x H x W uint8, in RGB order.

    One image or several are placed in an input of ``size`` (height and width in pixels); a batch of a data loader, N x
    3 x H x W uint8, array or torch tensor, is returned unchanged. Raises DataError if a file is not an image, or the
    list is empty, InputError if an element has another type, or pixels are not uint8, and ConfigError if the size is
    not positive.
    """
    if is_tensor(images) or isinstance(images, np.ndarray):
        levels = as_array(images, "images")
        if levels.dtype != np.uint8:
            raise InputError(f"images have dtype {levels.dtype}; pass uint8, 0 to 255, as the loader yields them")
        if levels.ndim == 4 and levels.shape[1] == 3:
            return levels
        images = levels
    if min(size) < 1:
        raise ConfigError(f"resize_shape {size} must be positive")
    single = list(images) if isinstance(images, (list, tuple)) else [images]
    if not single:
        raise DataError("the list of images is empty; pass at least one")
    return np.stack([letterbox(image_of(one), size, laying)[0].transpose(2, 0, 1) for one in single])


def image_of(given: Any, name: str = "an image") -> Image.Image:
    """Return a file, a PIL image, or height x width x 3 uint8 in RGB order (array or tensor) as one upright RGB image.

    Raises DataError if the file is not an image, and InputError, with the name, if the type or the array's form is
    wrong.
    """
    if isinstance(given, (str, os.PathLike)):
        return open_image(Path(given))
    if isinstance(given, Image.Image):
        return to_rgb(given, name)
    pixels = as_array(given, name)
    if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8 and 0 not in pixels.shape:
        return Image.fromarray(np.ascontiguousarray(pixels))
    raise InputError(
        f"{name} is {shape_text(pixels.shape)} of {pixels.dtype}; pass a path, a PIL image or H x W x 3 uint8, RGB"
    )


def square(resize_shape: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width of an input, given as one length or both in pixels; raise ConfigError otherwise."""
    sides = [resize_shape] if isinstance(resize_shape, (int, str)) else list(resize_shape)
    try:
        lengths = [int(side) for side in sides]
    except (TypeError, ValueError):
        lengths = []
    if len(lengths) not in (1, 2) or min(lengths) < 1:
        raise ConfigError(f"resize_shape {resize_shape!r} is not a size; pass a length in pixels, or height and width")
    return lengths[0], lengths[-1]
