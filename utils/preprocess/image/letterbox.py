"""How a picture is laid into a model's input of a fixed size: letterboxed or stretched; and the way back for boxes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array, ConfigError

FILL = 114
"""Level, 0 to 255, of what the picture does not cover; detectors of the YOLO family are trained with it."""


class Geometry(NamedTuple):
    """How a picture lies in a model's input; in pixels, coordinates run from the left and upper edges.

    Attributes:
        width, height: the picture's own.
        across, down: pixels of the input per pixel of the picture, along each axis. They differ where rounding to whole
            pixels made them.
        left, top: where the picture begins in the input.
    """

    width: int
    height: int
    across: float
    down: float
    left: int
    top: int


RESIZES = ("letterbox", "corner", "stretch")
"""``letterbox`` keeps the proportions and centres the picture (YOLO from version 5 on), ``corner`` keeps them and puts
it into the left upper corner (YOLOX, MMDetection), ``stretch`` scales each axis by itself (SSD)."""

ROUNDINGS = ("round", "floor", "ceil")
"""How the picture's scaled sides become whole pixels."""

FILTERS = ("bilinear", "opencv", "bicubic", "nearest", "box", "hamming", "lanczos")
"""Pillow's filters, of which all but ``nearest`` antialias where a picture shrinks; and ``opencv``: bilinear between
the four nearest pixels, which leaves the others out, as OpenCV's ``INTER_LINEAR``."""


class Laying(NamedTuple):
    """How pictures are laid into an input.

    Attributes:
        resize: one of :data:`RESIZES`.
        fill: level, 0 to 255, of what the picture does not cover.
        enlarge: whether a picture smaller than the input is scaled up; ``stretch`` always is.
        rounding: one of :data:`ROUNDINGS`.
        interpolation: one of :data:`FILTERS`.
    """

    resize: str = "letterbox"
    fill: int = FILL
    enlarge: bool = True
    rounding: str = "round"
    interpolation: str = "bilinear"


USUAL = Laying()


def sides_of(given: int | Sequence[int], name: str) -> tuple[int, int]:
    """Return the height and width that were given, as two numbers or as the one that both are, in pixels.

    Args:
        given: whole numbers of any kind. name: what an error message calls them.

    Raises:
        ConfigError: these are not one or two whole numbers of at least 1.
    """
    try:
        both = tuple(given) if isinstance(given, Iterable) else (given, given)
        height, width = (operator.index(side) for side in both)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise ConfigError(f"{name} {given} is no height and width in pixels; pass one or two positive whole numbers")
    return height, width


def fit(width: int, height: int, size: tuple[int, int], laying: Laying = USUAL) -> Geometry:
    """Return how a picture of this width and height lies within an input of ``size``, height and width.

    Where proportions are kept it is scaled by the smaller of the two ratios, to whole pixels and at least one; where it
    is centred an odd rest puts the larger part to the right and below.

    Raises:
        ConfigError: a length is not positive.
    """
    if min(width, height, *size) < 1:
        raise ConfigError(f"a {width}x{height} picture cannot be fitted into {size[1]}x{size[0]}; give positive sizes")
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
    """Return a length in whole pixels, at least one; what floats leave of a whole number is no fraction."""
    near = round(length)
    if rounding != "round" and abs(length - near) > 1e-6:
        near = math.floor(length) if rounding == "floor" else math.ceil(length)
    return max(1, near)


def letterbox(image: Image.Image, size: tuple[int, int], laying: Laying = USUAL) -> tuple[Array, Geometry]:
    """Return an RGB picture within an input of ``size``, as height x width x 3 uint8, and how it lies there.

    One that has the right size already keeps every pixel.

    Args:
        image: mode ``RGB``.
        size: height and width of the input in pixels.
        laying: how it is laid in; the usual: centred, filled with :data:`FILL`, Pillow's antialiased bilinear filter.

    Raises:
        ConfigError: a length is not positive.
    """
    geometry = fit(image.width, image.height, size, laying)
    inner = round(geometry.width * geometry.across), round(geometry.height * geometry.down)
    canvas = np.full((*size, 3), laying.fill, np.uint8)
    bottom, right = geometry.top + inner[1], geometry.left + inner[0]
    canvas[geometry.top : bottom, geometry.left : right] = _resized(image, inner, laying.interpolation)
    return canvas, geometry


def _resized(image: Image.Image, size: tuple[int, int], name: str) -> Array:
    """Return the picture's pixels at another width and height."""
    if image.size == size:
        return np.asarray(image)
    if name == "opencv":
        return between_pixels(np.asarray(image), size)
    return np.asarray(image.resize(size, Image.Resampling[name.upper()]))


def between_pixels(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize height x width x C uint8 bilinearly between the nearest pixels, without antialiasing, to width and height.

    Pixels lie at half-integer coordinates, and beyond the first and the last one those are repeated, as in OpenCV's
    ``INTER_LINEAR`` (docs.opencv.org, "Geometric Image Transformations"), from whose fixed-point sums this may differ
    by one level.
    """
    rows, down = _neighbours(pixels.shape[0], size[1])
    columns, along = _neighbours(pixels.shape[1], size[0])
    wide = pixels.astype(np.float32)
    lines = wide[rows] * (1 - down)[:, None, None] + wide[rows + (down > 0)] * down[:, None, None]
    found = lines[:, columns] * (1 - along)[:, None] + lines[:, columns + (along > 0)] * along[:, None]
    levels: Array = np.rint(found).astype(np.uint8)
    return levels


def _neighbours(length: int, new: int) -> tuple[Array, Array]:
    """Return for each new pixel of an axis the pixel before it, int64, and how far behind that it lies, float32."""
    place = np.clip((np.arange(new) + 0.5) * (length / new) - 0.5, 0, length - 1)
    before = np.floor(place).astype(np.int64)
    return before, (place - before).astype(np.float32)


def to_input(boxes: Array, geometry: Geometry) -> Array:
    """Return N x 4 boxes (left, top, right, bottom) of a picture in the pixels of the input, float64."""
    scale = np.array([geometry.across, geometry.down] * 2)
    start = np.array([geometry.left, geometry.top] * 2, np.float64)
    moved: Array = np.asarray(boxes, np.float64) * scale + start
    return moved


def to_picture(boxes: Array, geometry: Geometry) -> Array:
    """Return N x 4 boxes (left, top, right, bottom) of the input in the pixels of the picture, clipped to it, float64.

    This undoes :func:`to_input`. A box beside the picture ends up with no area, at its edge.
    """
    scale = np.array([geometry.across, geometry.down] * 2)
    start = np.array([geometry.left, geometry.top] * 2, np.float64)
    edge = np.array([geometry.width, geometry.height] * 2, np.float64)
    back: Array = np.clip((np.asarray(boxes, np.float64) - start) / scale, 0.0, edge)
    return back
