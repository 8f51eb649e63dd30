"""Letterbox: a picture at its own proportions within a model's input, the rest filled; and the way back."""

from __future__ import annotations

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


def fit(width: int, height: int, size: tuple[int, int]) -> Geometry:
    """Return how a picture of this width and height is centred within an input of ``size``, height and width.

    The picture is scaled by the smaller of the two ratios, to whole pixels and at least one; an odd rest puts the
    larger part to the right and below.

    Raises:
        ConfigError: a length is not positive.
    """
    if min(width, height, *size) < 1:
        raise ConfigError(f"a {width}x{height} picture cannot be fitted into {size[1]}x{size[0]}; give positive sizes")
    scale = min(size[1] / width, size[0] / height)
    inner_width = min(size[1], max(1, round(width * scale)))
    inner_height = min(size[0], max(1, round(height * scale)))
    left, top = (size[1] - inner_width) // 2, (size[0] - inner_height) // 2
    return Geometry(width, height, inner_width / width, inner_height / height, left, top)


def letterbox(image: Image.Image, size: tuple[int, int], fill: int = FILL) -> tuple[Array, Geometry]:
    """Return an RGB picture within an input of ``size``, as height x width x 3 uint8, and how it lies there.

    It is resized with Pillow's antialiased bilinear filter; one that has the right size already keeps every pixel.

    Args:
        image: mode ``RGB``.
        size: height and width of the input in pixels.
        fill: level of what it does not cover.

    Raises:
        ConfigError: a length is not positive.
    """
    geometry = fit(image.width, image.height, size)
    inner = round(geometry.width * geometry.across), round(geometry.height * geometry.down)
    canvas = np.full((*size, 3), fill, np.uint8)
    resized = image if image.size == inner else image.resize(inner, Image.Resampling.BILINEAR)
    bottom, right = geometry.top + inner[1], geometry.left + inner[0]
    canvas[geometry.top : bottom, geometry.left : right] = np.asarray(resized)
    return canvas, geometry


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
