"""The historical face of YOLO's preprocessing: pictures letterboxed into a batch, without importing torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from utils.preprocess.image.images import open_image, to_rgb
from utils.preprocess.image.letterbox import letterbox, sides_of
from utils.torch_array import as_array, is_tensor, like

__all__ = ["IMG_FORMATS", "preprocess"]

IMG_FORMATS = ("bmp", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""Endings of file names, in small letters and without a dot, that the zoo takes for pictures'."""

Size: TypeAlias = "int | Sequence[int]"


def preprocess(
    inputs: Any, batch_size: int, input_size: Size, batch_padding: bool = True, half: bool = False, **kw: Any
) -> tuple[Any, int, list[tuple[int, int]]]:
    """Turn pictures into a YOLO model's input: letterboxed, RGB, 0 to 1.

    A picture keeps its proportions and is centred; the rest is grey, level 114. One that has the input's size keeps
    every pixel. A picture file is put upright first, as everywhere in the zoo.

    Args:
        inputs: a picture or a list of them: a path, a PIL image, or an H x W x 3 uint8 array in RGB order; or a batch
            as a loader gives it, N x 3 x H x W uint8, array or tensor.
        batch_size: the result has this many pictures, or a multiple of it where more come in.
        input_size: height and width of the model's input in pixels, or the one number that both are.
        batch_padding: fill the batch up with black pictures; ``False`` leaves it at what came in.
        half: float16, else float32.
        **kw: accepted for scripts that pass more; what is given is named in a warning and not used.

    Returns:
        N x 3 x H x W, a tensor where ``inputs`` is one; how many of the N are real pictures, which ``postprocess``
        calls ``padding_shape``; the height and width of each real picture before it was laid in.

    Raises:
        ConfigError: a batch size or input size that is not positive.
        DataError: there is no picture, one cannot be read, or an array is no picture.
    """
    if kw:
        warnings.warn(f"preprocess does not use {', '.join(sorted(kw))}", stacklevel=2)
    size = sides_of(input_size, "input_size")
    if batch_size < 1:
        raise ConfigError(f"batch_size {batch_size} must be at least 1")
    images, shapes = _laid(inputs, size)
    count = len(images)
    total = -(-count // batch_size) * batch_size if batch_padding else count
    made = np.zeros((total, 3, *size), np.float16 if half else np.float32)
    for place, image in enumerate(images):
        made[place] = np.divide(image, 255, dtype=np.float32)
    return (like(made, inputs) if is_tensor(inputs) else made), count, shapes


def _laid(inputs: Any, size: tuple[int, int]) -> tuple[Sequence[Array], list[tuple[int, int]]]:
    """Return pictures laid into the input, each 3 x H x W uint8, and the height and width that they had."""
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not isinstance(inputs, (list, tuple, str, os.PathLike, Image.Image)):
        batch = as_array(inputs, "inputs")
        if batch.ndim == 4 and (batch.shape[1] != 3 or batch.dtype != np.uint8):
            raise DataError(f"inputs are {batch.dtype} of shape {batch.shape}; pass N x 3 x H x W uint8")
        if batch.ndim == 4 and len(batch) and batch.shape[2:] == size:
            return list(batch), [size] * len(batch)
        given = list(batch.transpose(0, 2, 3, 1)) if batch.ndim == 4 else [batch]
    if not given:
        raise DataError("there is no picture to preprocess; pass at least one")
    pictures = [_picture(one, f"picture {place}") for place, one in enumerate(given)]
    laid = [letterbox(picture, size)[0].transpose(2, 0, 1) for picture in pictures]
    return laid, [(picture.height, picture.width) for picture in pictures]


def _picture(given: Any, name: str) -> Image.Image:
    """Return one picture in RGB."""
    if isinstance(given, (str, os.PathLike)):
        return open_image(given)
    if isinstance(given, Image.Image):
        return to_rgb(given, name)
    pixels: Array = as_array(given, name)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape:
        raise DataError(f"{name} is {pixels.dtype} of shape {pixels.shape}; pass a path or H x W x 3 uint8, RGB")
    return Image.fromarray(np.ascontiguousarray(pixels))
