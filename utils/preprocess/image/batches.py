"""What the historical preprocessing of detectors takes: files, pictures, or a batch that a loader has laid out."""

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
from utils.preprocess.image.letterbox import USUAL, Laying, letterbox
from utils.torch_array import as_array, is_tensor

Picture: TypeAlias = "str | os.PathLike[str] | Image.Image | Array"
"""A file, a PIL image, or height x width x 3 uint8."""


def levels_of(images: Any, size: tuple[int, int], laying: Laying = USUAL) -> Array:
    """Return pictures as N x 3 x H x W uint8, in RGB order.

    Args:
        images: a picture or several, which are laid into an input of ``size``, height and width in pixels; or N x 3 x
            H x W uint8, an array or a torch tensor, which a loader has laid out already: it comes back as it is.
        size: see there. laying: how pictures are laid in.

    Raises:
        DataError: a file that is no picture, or an empty list.
        InputError: something else, or pixels that are not uint8.
        ConfigError: a size that is not positive.
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
    pictures = list(images) if isinstance(images, (list, tuple)) else [images]
    if not pictures:
        raise DataError("there is no picture; pass at least one")
    return np.stack([letterbox(picture_of(one), size, laying)[0].transpose(2, 0, 1) for one in pictures])


def picture_of(given: Any, name: str = "a picture") -> Image.Image:
    """Return one picture, upright RGB.

    Args:
        given: a file, a PIL image, or height x width x 3 uint8 in RGB order, an array or a tensor.
        name: what errors call pixels.

    Raises:
        DataError: a file that is no picture. InputError: something else.
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
    """Return height and width of an input as scripts say them: one length, or both.

    Raises:
        ConfigError: it is something else.
    """
    sides = [resize_shape] if isinstance(resize_shape, (int, str)) else list(resize_shape)
    try:
        lengths = [int(side) for side in sides]
    except (TypeError, ValueError):
        lengths = []
    if len(lengths) not in (1, 2) or min(lengths) < 1:
        raise ConfigError(f"{resize_shape!r} is no size of pictures; pass a length in pixels, or height and width")
    return lengths[0], lengths[-1]
