"""Placement of an image in a model input of fixed size, letterboxed or stretched, and conversion of boxes back."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array, ConfigError
from utils.preprocess.image import kernels

FILL = 114
"""Level, 0 to 255, of the area not covered by the image; detectors of the YOLO family are trained with it."""


class Geometry(NamedTuple):
    """Position of an image in a model's input, in pixels from the left and upper edges.

    Attributes:
        width, height: of the original image.
        across, down: pixels of the input per pixel of the image along each axis; rounding to whole pixels makes them
            differ.
        left, top: first column and row of the image in the input.
    """

    width: int
    height: int
    across: float
    down: float
    left: int
    top: int


RESIZES = ("letterbox", "corner", "stretch")
"""``letterbox`` keeps the proportions and centres the image (YOLO from version 5 on), ``corner`` keeps them and places
it at the upper left (YOLOX, MMDetection), ``stretch`` scales each axis separately (SSD)."""

ROUNDINGS = ("round", "floor", "ceil")
"""Rounding of the scaled sides to whole pixels."""

FILTERS = ("bilinear", "opencv", "bicubic", "nearest", "box", "hamming", "lanczos")
"""Pillow's filters, all of which except ``nearest`` antialias when an image shrinks; and ``opencv``: bilinear between
the four nearest pixels, without antialiasing, as OpenCV's ``INTER_LINEAR``."""


class Placement(NamedTuple):
    """Settings of the placement of images in an input.

    Attributes:
        resize: one of :data:`RESIZES`.
        fill: level, 0 to 255, of the area not covered by the image.
        enlarge: whether an image smaller than the input is scaled up; ``stretch`` always does.
        rounding: one of :data:`ROUNDINGS`.
        interpolation: one of :data:`FILTERS`.
    """

    resize: str = "letterbox"
    fill: int = FILL
    enlarge: bool = True
    rounding: str = "round"
    interpolation: str = "bilinear"


USUAL = Placement()


def sides_of(given: int | Sequence[int], name: str) -> tuple[int, int]:
    """Return height and width in pixels, given as two integers or as one for both.

    Raises ConfigError, with their name, if they are not one or two integers of at least 1.
    """
    try:
        both = tuple(given) if isinstance(given, Iterable) else (given, given)
        height, width = (operator.index(side) for side in both)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise ConfigError(f"{name} {given} is not a height and width in pixels; pass one or two positive whole numbers")
    return height, width


def fit(width: int, height: int, size: tuple[int, int], laying: Placement = USUAL) -> Geometry:
    """Return the position of an image of this width and height in an input of ``size`` (height, width).

    If proportions are kept, the image is scaled by the smaller of the two ratios, to whole pixels and at least one; if
    it is centred, an odd remainder makes the right and lower margins larger. Raises ConfigError if a length is not
    positive.
    """
    if min(width, height, *size) < 1:
        raise ConfigError(f"a {width}x{height} image cannot be fitted into {size[1]}x{size[0]}; give positive sizes")
    if laying.resize == "stretch":
        return Geometry(width, height, size[1] / width, size[0] / height, 0, 0)
    scale = min(size[1] / width, size[0] / height)
    scale = scale if laying.enlarge else min(scale, 1.0)
    inner_width, inner_height = (_whole(side * scale, laying.rounding) for side in (width, height))
    inner_width, inner_height = min(size[1], inner_width), min(size[0], inner_height)
    left = top = 0
    if laying.resize == "letterbox":
        left, top = (size[1] - inner_width) // 2, (size[0] - inner_height) // 2
    return Geometry(width, height, inner_width / width, inner_height / height, left, top)


def _whole(length: float, rounding: str) -> int:
    """Return a length in whole pixels, at least 1; floats within 1e-6 of an integer count as that integer."""
    near = round(length)
    if rounding != "round" and abs(length - near) > 1e-6:
        near = math.floor(length) if rounding == "floor" else math.ceil(length)
    return max(1, near)


def letterbox(image: Image.Image, size: tuple[int, int], laying: Placement = USUAL) -> tuple[Array, Geometry]:
    """Return an RGB image in an input of ``size``, as height x width x 3 uint8, and its position there.

    The pixels of an image that already has the right size do not change. By default, it is centred, the rest is filled
    with :data:`FILL`, and Pillow's antialiased bilinear filter resizes. Raises ConfigError if a length is not positive.
    """
    geometry = fit(image.width, image.height, size, laying)
    inner = round(geometry.width * geometry.across), round(geometry.height * geometry.down)
    canvas = np.full((*size, 3), laying.fill, np.uint8)
    bottom, right = geometry.top + inner[1], geometry.left + inner[0]
    canvas[geometry.top : bottom, geometry.left : right] = resized(image, inner, laying.interpolation)
    return canvas, geometry


def resized(image: Image.Image, size: tuple[int, int], name: str) -> Array:
    """Return the levels of an ``RGB`` or ``L`` image at (width, height), with one of :data:`FILTERS`."""
    levels = np.asarray(image)
    if image.size == size:
        return levels
    if name == "opencv":
        made = between_pixels(levels if levels.ndim == 3 else levels[..., None], size)
        return made.reshape(*size[::-1], *levels.shape[2:])
    return kernels.resized(image, size, Image.Resampling[name.upper()])


def between_pixels(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize height x width x C uint8 to (width, height), bilinearly between the nearest pixels, without antialiasing.

    Pixels lie at half-integer coordinates, and the border is repeated, as in OpenCV's ``INTER_LINEAR``
    (docs.opencv.org, "Geometric Image Transformations"), whose fixed-point result may differ by one level.
    """
    rows, down = _neighbours(pixels.shape[0], size[1])
    columns, along = _neighbours(pixels.shape[1], size[0])
    wide = pixels.astype(np.float32)
    lines = wide[rows] * (1 - down)[:, None, None] + wide[rows + (down > 0)] * down[:, None, None]
    found = lines[:, columns] * (1 - along)[:, None] + lines[:, columns + (along > 0)] * along[:, None]
    return np.asarray(np.rint(found), np.uint8)


def _neighbours(length: int, new: int) -> tuple[Array, Array]:
    """Return for each new pixel of an axis the index of the pixel before it, int64, and the distance to it, float32."""
    place = np.clip((np.arange(new) + 0.5) * (length / new) - 0.5, 0, length - 1)
    before = np.floor(place).astype(np.int64)
    return before, (place - before).astype(np.float32)


def to_input(boxes: Array, geometry: Geometry) -> Array:
    """Convert N x 4 boxes (left, top, right, bottom) in pixels of an image to pixels of the input, float64."""
    scale, start = _scale_and_start(geometry)
    return np.asarray(boxes, np.float64) * scale + start


def to_image(boxes: Array, geometry: Geometry) -> Array:
    """Convert N x 4 boxes (left, top, right, bottom) in pixels of the input to pixels of the image, float64.

    Inverse of :func:`to_input`, but clipped: a box outside the image becomes an empty one at its edge.
    """
    scale, start = _scale_and_start(geometry)
    edge = np.array([geometry.width, geometry.height] * 2, np.float64)
    return np.clip((np.asarray(boxes, np.float64) - start) / scale, 0.0, edge)


def _scale_and_start(geometry: Geometry) -> tuple[Array, Array]:
    scale, start = (geometry.across, geometry.down), (geometry.left, geometry.top)
    return np.array(scale * 2), np.array(start * 2, np.float64)
