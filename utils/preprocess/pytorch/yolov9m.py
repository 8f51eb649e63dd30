"""Historical interface of YOLOv9's preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utils.preprocess.image.batches import ImageSource, levels_of, square
from utils.torch_array import like

__all__ = ["preprocess"]


def preprocess(
    images: ImageSource | Sequence[ImageSource], half: bool = False, resize_shape: int | Sequence[int] = 640
) -> Any:
    """Convert images to a YOLO model's input: letterboxed with grey 114 into a square, RGB, 0 to 1.

    Arguments, result and errors are those of :func:`utils.preprocess.pytorch.ssd.preprocess`, with 640 as the default
    size.
    """
    levels = levels_of(images, square(resize_shape))
    made = levels.astype(np.float32) / np.float32(255)
    return like(made.astype(np.float16) if half else made, images)
