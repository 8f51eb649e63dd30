"""Resize and crop as torchvision and Paddle do: one of Pillow's filters on the whole picture, then a crop.

:mod:`utils.preprocess.image.exact_crop` leaves out what the crop does not need where that changes no bit. Pillow itself
can also resize only the part that the crop keeps (``box``). That is faster, and not bit by bit the same, for two
reasons: Pillow keeps the part's edges as float32, so weights are rounded another way; and from 13 on it may take the
part's rows and columns in the other order than the whole's, with samples rounded to 8 bits in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from PIL import Image

from engine import DataError
from utils.preprocess.image.exact_crop import resized_crop
from utils.preprocess.image.images import Box, Decoded

CropStart: TypeAlias = Callable[[int, int], int]
"""Where a crop begins along one axis, from the picture's and the crop's extent; negative pads."""


def resize_and_crop(
    picture: Decoded,
    resize: tuple[int, ...],
    crop: tuple[int, int],
    crop_start: CropStart,
    *,
    fused: bool,
    name: str,
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> Image.Image:
    """Return the crop of the resized picture, in its mode.

    Args:
        picture: the picture and where it lies in its image.
        resize: length of the short side in pixels, or ``(height, width)``.
        crop: height and width of the crop in pixels; where it exceeds the resized picture it is padded with black.
        crop_start: the framework's rule for where the crop begins.
        fused: compute only the crop's pixels, if it lies within the resized picture.
        name: what an error message calls the picture.
        resample: the filter.

    Raises:
        DataError: the resized picture would have more than ``PIL.Image.MAX_IMAGE_PIXELS`` pixels.
    """
    image, box = picture
    width, height = size = _resized_size(picture, resize, name)
    left, top = crop_start(width, crop[1]), crop_start(height, crop[0])
    right, bottom = left + crop[1], top + crop[0]
    if size != image.size or box != (0, 0, *size):
        if left >= 0 and top >= 0 and right <= width and bottom <= height:
            if fused:
                part = _part(box, size, (left, top, right, bottom))
                return image.resize(crop[::-1], resample, part)
            return resized_crop(image, size, (left, top, right, bottom), resample)
        image = image.resize(size, resample, box)
    return image if crop[::-1] == size and left == top == 0 else image.crop((left, top, right, bottom))


def _part(box: Box, size: tuple[int, int], crop: tuple[int, int, int, int]) -> Box:
    """Return where in the source the crop of a ``box`` resized to ``size`` comes from."""
    across, down = (box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]
    left, top, right, bottom = crop
    # rounding may put the last edge beyond the image, which Pillow refuses
    end = min(box[0] + right * across, box[2]), min(box[1] + bottom * down, box[3])
    return box[0] + left * across, box[1] + top * down, *end


def _resized_size(picture: Decoded, shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return width and height as torchvision's and paddle's ``Resize`` choose them; both truncate the long side."""
    left, top, right, bottom = picture.box
    old_width, old_height = right - left, bottom - top
    if len(shape) == 2:
        height, width = shape
    elif old_width <= old_height:
        width, height = shape[0], int(shape[0] * old_height / old_width)
    else:
        width, height = int(shape[0] * old_width / old_height), shape[0]
    limit = Image.MAX_IMAGE_PIXELS
    is_resized = (width, height) != picture.image.size
    if is_resized and limit is not None and width * height > limit:  # a 1 x 100000 strip would need gigabytes
        raise DataError(
            f"{name}: {picture.image.width}x{picture.image.height} would be resized to {width}x{height}, over the limit"
            f" of {limit} pixels; crop it first, or pass resize_shape as (height, width)"
        )
    return width, height
