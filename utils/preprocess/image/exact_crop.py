"""The crop of a resized picture, bit by bit as Pillow's resize of the whole and a crop give it, at less cost.

Pillow resizes one axis after the other, with samples rounded to 8 bits in between. Either pass is a call of its own
here, made only for the lines that the crop needs. Along its own axis a pass is confined to the crop where the scale is
a fraction of a power of two, as it is along the short side when that becomes 256 pixels: all edges and centres of
Pillow's filter are then exact in its float32 and float64, and so are its weights. Along another axis every weight
depends on the whole length, so that axis is resized in full, with black in place of the lines that were left out.
This holds of every filter that Pillow applies in two passes; they differ in how far they reach. ``NEAREST`` is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from utils.preprocess.image.images import Box

Order: TypeAlias = "Callable[[tuple[int, int], tuple[int, int]], bool]"
"""Whether Pillow takes the vertical axis first, from an image's old and new size."""

_BILINEAR = Image.Resampling.BILINEAR
_SUPPORTS = {
    Image.Resampling.BOX: 0.5,
    _BILINEAR: 1.0,
    Image.Resampling.HAMMING: 1.0,
    Image.Resampling.BICUBIC: 2.0,
    Image.Resampling.LANCZOS: 3.0,
}
"""How far each filter reaches from a resized sample's centre, in resized samples where the picture shrinks."""
_SMALLEST_SHARE, _FEWEST_PIXELS = 0.1, 4096
"""What a crop must leave out of the resized picture to be worth the copies in between and 20 us of calls."""
_PROBES = (((9, 30), (7, 26)), ((9, 30), (7, 25)), ((9, 30), (20, 29)), ((9, 30), (3, 40)), ((30, 9), (13, 5)))
"""Old and new sizes that tell the known orders apart: at the bound, beyond it, and where a side grows."""


class _Axis(NamedTuple):
    """One axis of a resize, by a filter that reaches ``support`` far; samples ``first`` to ``end`` are kept."""

    old: int
    new: int
    first: int
    end: int
    support: float = 1.0

    @property
    def is_dyadic(self) -> bool:
        """Whether float32 holds every edge of the resized samples; true also of an axis that keeps its length."""
        denominator = self.new // math.gcd(self.old, self.new)
        return self.old == self.new or (denominator.bit_count() == 1 and self.old * denominator <= 1 << 24)

    def needed(self) -> tuple[int, int]:
        """Return the source samples that the kept ones are made of, and perhaps one more at either end."""
        scale = self.old / self.new
        if scale == 1:
            return self.first, self.end
        reach = max(scale, 1.0) * self.support
        low, high = (self.first + 0.5) * scale - reach, (self.end - 0.5) * scale + reach
        return max(0, math.floor(low)), min(self.old, math.ceil(high))

    def source(self) -> tuple[int, int]:
        """Return the source samples that must be in place when this axis is resized."""
        return self.needed() if self.is_dyadic else (0, self.old)


def resized_crop(
    image: Image.Image,
    size: tuple[int, int],
    crop: tuple[int, int, int, int],
    resample: Image.Resampling = _BILINEAR,
) -> Image.Image:
    """Return ``image.resize(size, resample).crop(crop)``, bit by bit.

    Args:
        image: an image of mode ``RGB`` or ``L``.
        size: width and height to resize to, in pixels.
        crop: what to keep of that; it must lie within it.
        resample: the filter.
    """
    support = _SUPPORTS.get(resample)
    if support is None:
        return _cropped(image.resize(size, resample), crop)
    across = _Axis(image.width, size[0], crop[0], crop[2], support)
    down = _Axis(image.height, size[1], crop[1], crop[3], support)
    order = _order() if _is_worthwhile(across, down) else None
    if order is None:
        return _cropped(image.resize(size, resample), crop)
    is_vertical = order(image.size, size)
    first, second = (down, across) if is_vertical else (across, down)
    lines, source = second.needed(), second.source()
    image = _cropped(image, _box(first.source(), lines, is_vertical))
    image = _resized(image, first, is_vertical, resample)
    padded = source[0] - lines[0], source[1] - lines[0]
    image = _cropped(image, _box((0, first.end - first.first), padded, is_vertical))
    return _resized(image, second, not is_vertical, resample)


def _is_worthwhile(across: _Axis, down: _Axis) -> bool:
    """Tell whether two passes beat the whole resize, within the sizes that Pillow crops without a warning."""
    size = across.new * down.new
    left_out = size - (across.end - across.first) * (down.end - down.first)
    most = max(across.old, across.new) * max(down.old, down.new)
    limit = Image.MAX_IMAGE_PIXELS
    saves = left_out >= max(size * _SMALLEST_SHARE, _FEWEST_PIXELS)
    return saves and (across.is_dyadic or down.is_dyadic) and (limit is None or most <= limit)


def _resized(image: Image.Image, axis: _Axis, is_vertical: bool, resample: Image.Resampling) -> Image.Image:
    """Resize one axis of an image that holds the axis' source samples, and keep the crop's part of it."""
    if axis.old == axis.new:
        return image
    lines = image.width if is_vertical else image.height
    if not axis.is_dyadic:
        resized = image.resize((lines, axis.new) if is_vertical else (axis.new, lines), resample)
        return resized.crop(_box((axis.first, axis.end), (0, lines), is_vertical))
    low, scale = axis.source()[0], axis.old / axis.new
    part = axis.first * scale - low, axis.end * scale - low
    count = axis.end - axis.first
    size = (lines, count) if is_vertical else (count, lines)
    return image.resize(size, resample, _box(part, (0, lines), is_vertical))


def _box(along: tuple[float, float], lines: tuple[int, int], is_vertical: bool) -> Box:
    """Return a box from its extents along an axis and across it."""
    if is_vertical:
        return lines[0], along[0], lines[1], along[1]
    return along[0], lines[0], along[1], lines[1]


def _cropped(image: Image.Image, crop: Box) -> Image.Image:
    return image if crop == (0, 0, *image.size) else image.crop(crop)


@cache
def _order() -> Order | None:
    """Return the order of passes that this Pillow follows, found by trying it; ``None`` for an unknown one."""
    return next((order for order in (_order_of_pillow_13, _horizontal_first) if _is_followed(order)), None)


def _is_followed(order: Order) -> bool:
    for old, new in _PROBES:
        noise = np.arange(old[0] * old[1], dtype=np.uint32).reshape(old[::-1]) ** 3 * 77 >> 4
        image = Image.fromarray(noise.astype(np.uint8))
        between = (old[0], new[1]) if order(old, new) else (new[0], old[1])
        for resample in _SUPPORTS:
            if image.resize(new, resample) != image.resize(between, resample).resize(new, resample):
                return False
    return True


def _order_of_pillow_13(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Take the vertical axis first where the height loses more pixels than twice what the width loses."""
    lost = old[1] - new[1]
    return lost > 0 and lost > 2 * (old[0] - new[0])


def _horizontal_first(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Take the horizontal axis first, always, as Pillow 12 and older do."""
    return False
