"""Historical interface of YOLO's preprocessing: images letterboxed into a batch, without torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError, InputError
from utils.preprocess.image.batches import image_of
from utils.preprocess.image.letterbox import letterbox, sides_of
from utils.torch_array import as_array, first_tensor, like

__all__ = ["IMG_FORMATS", "preprocess"]

IMG_FORMATS = ("bmp", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""Lower-case endings of image files, without a dot."""

Size: TypeAlias = "int | Sequence[int]"


def preprocess(
    inputs: Any, batch_size: int, input_size: Size, batch_padding: bool = True, half: bool = False, **kw: Any
) -> tuple[Any, int, list[tuple[int, int]]]:
    """Convert images to a YOLO model's input: letterboxed, RGB, 0 to 1.

    An image keeps its proportions and is centred; the rest is grey, level 114. The pixels of an image of the input's
    size do not change. Image files are turned upright first. Raises ConfigError if the batch size or input size is not
    positive, DataError if an image is missing or cannot be read, and InputError if an array is not an image.

    Args:
        inputs: an image or a list of them: a path, a PIL image, or an H x W x 3 uint8 array in RGB order; or a data
            loader's batch, N x 3 x H x W uint8, array or tensor.
        batch_size: number of images in the result, or a multiple of it if there are more.
        input_size: height and width of the model's input in pixels, or one number for both.
        batch_padding: fill the batch with black images; ``False`` does not.
        half: float16, else float32.
        **kw: accepted for scripts that pass more; not used, with a warning that lists them.

    Returns N x 3 x H x W, a tensor if ``inputs`` is one or has one; the number of real images among the N, the
    ``padding_shape`` of ``postprocess``; the original height and width of each real image.
    """
    if kw:
        warnings.warn(f"preprocess does not use {', '.join(sorted(kw))}", stacklevel=2)
    size = sides_of(input_size, "input_size")
    if not hasattr(batch_size, "__index__") or batch_size < 1:
        raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")
    images, shapes = _laid(inputs, size)
    count = len(images)
    total = -(-count // batch_size) * batch_size if batch_padding else count
    made = np.zeros((total, 3, *size), np.float16 if half else np.float32)
    for place, image in enumerate(images):
        made[place] = np.divide(image, 255, dtype=np.float32)
    return (made if first_tensor(inputs) is None else like(made, inputs)), count, shapes


def _laid(inputs: Any, size: tuple[int, int]) -> tuple[Sequence[Array], list[tuple[int, int]]]:
    """Return images placed in the input, each 3 x H x W uint8, and their original heights and widths."""
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not isinstance(inputs, (list, tuple, str, os.PathLike, Image.Image)):
        batch = as_array(inputs, "inputs")
        if batch.ndim == 4 and (batch.shape[1] != 3 or batch.dtype != np.uint8):
            raise InputError(f"inputs are {batch.dtype} of shape {batch.shape}; pass N x 3 x H x W uint8")
        if batch.ndim == 4 and len(batch) and batch.shape[2:] == size:
            return list(batch), [size] * len(batch)
        given = list(batch.transpose(0, 2, 3, 1)) if batch.ndim == 4 else [batch]
    if not given:
        raise DataError("the list of images is empty; pass at least one")
    opened = [image_of(one, f"image {place}") for place, one in enumerate(given)]
    laid = [letterbox(one, size)[0].transpose(2, 0, 1) for one in opened]
    return laid, [(one.height, one.width) for one in opened]
