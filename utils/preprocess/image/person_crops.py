"""Crops of objects for models of one object's key points: the box, widened to the input's proportions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array

SCALE = 1.25
"""Factor by which boxes are widened: that of SimpleBaseline, HRNet and MMPose."""


class Crop(NamedTuple):
    """Part of an image in an input.

    Attributes:
        left, top: place of the input's first pixel in the image, in whole numbers of pixels.
        step: pixels of the image per pixel of the input.
        box: left, top, right and bottom of the object in the image.
    """

    left: float
    top: float
    step: float
    box: tuple[float, float, float, float]

    def in_image(self, points: Array) -> Array:
        """Return ... x 2 points (x, y) in pixels of the image, from pixels of the input."""
        moved: Array = points * self.step + (self.left, self.top)
        return moved


def crop_of(box: Array, size: tuple[int, int], scale: float) -> Crop:
    """Return the part of an image for an object: its box times ``scale``, around its centre, with the proportions of an
    input of height and width ``size``; the side that is too short is lengthened.

    The input's centre, at (width / 2, height / 2), is that of the box, as in SimpleBaseline's affine transform.
    """
    left, top, right, bottom = (float(edge) for edge in box)
    width, height = max(right - left, 1.0), max(bottom - top, 1.0)
    step = max(width / size[1], height / size[0]) * scale
    middle = (left + right) / 2, (top + bottom) / 2
    return Crop(middle[0] - step * size[1] / 2, middle[1] - step * size[0] / 2, step, (left, top, right, bottom))


def cropped(image: Image.Image, crop: Crop, size: tuple[int, int]) -> Array:
    """Return a part of an RGB image, height x width x 3 uint8; bilinear, black outside of the image.

    Pixel (x, y) of the result is the image at (left + x * step, top + y * step) between its nearest pixels, without
    antialiasing, as OpenCV's ``warpAffine``; Pillow's coordinates are those of edges, half a pixel further.
    """
    shift = 0.5 - 0.5 * crop.step
    matrix = (crop.step, 0.0, crop.left + shift, 0.0, crop.step, crop.top + shift)
    return np.asarray(image.transform(size[::-1], Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR))
