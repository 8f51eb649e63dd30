"""The historical face of YOLOv9's preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utils.preprocess.image.batches import Picture, levels_of, square
from utils.torch_array import like

__all__ = ["preprocess"]


def preprocess(images: Picture | Sequence[Picture], half: bool = False, resize_shape: int | Sequence[int] = 640) -> Any:
    """Turn pictures into a YOLO model's input: letterboxed with grey 114 into a square, RGB, 0 to 1.

    Args:
        images: a path, a PIL image or H x W x 3 uint8; a list of these; or the N x 3 x H x W uint8 of a loader, array
            or torch tensor, which keeps its size.
        half: float16 instead of float32.
        resize_shape: side of the input in pixels, or height and width.

    Returns:
        N x 3 x H x W; a torch tensor where one was given.

    Raises:
        DataError: a file that is no picture. InputError: pixels that are not uint8. ConfigError: an impossible size.
    """
    levels = levels_of(images, square(resize_shape))
    made = levels.astype(np.float32) / np.float32(255)
    return like(made.astype(np.float16) if half else made, images)
