"""Historical interface of SSD's preprocessing: SSD with MobileNetV3 for images of 320 x 320."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utils.preprocess.image.batches import ImageSource, levels_of, square
from utils.preprocess.image.letterbox import Placement
from utils.torch_array import like

__all__ = ["MEAN", "STRETCHED", "preprocess"]

MEAN = (123.0, 117.0, 104.0)
"""Mean of red, green and blue, in levels of 0 to 255, without division by a standard deviation, as in the published
configuration of these weights (lufficc/SSD, ``INPUT.PIXEL_MEAN``)."""

STRETCHED = Placement("stretch", interpolation="opencv")
"""Placement of images in the input."""


def preprocess(
    images: ImageSource | Sequence[ImageSource], half: bool = False, resize_shape: int | Sequence[int] = 320
) -> Any:
    """Convert images to SSD's input: stretched to a square, levels of 0 to 255 in RGB minus :data:`MEAN`.

    Args:
        images: a path, a PIL image or H x W x 3 uint8; a list of these; or a data loader's N x 3 x H x W uint8, array
            or torch tensor, which keeps its size.
        half: float16 instead of float32.
        resize_shape: side of the input in pixels, or height and width.

    Returns N x 3 x H x W; a torch tensor for a torch tensor. Raises DataError if a file is not an image, InputError if
    pixels are not uint8, and ConfigError if the size is invalid.
    """
    levels = levels_of(images, square(resize_shape), STRETCHED)
    made = levels.astype(np.float32) - np.array(MEAN, np.float32)[:, None, None]
    return like(made.astype(np.float16) if half else made, images)
