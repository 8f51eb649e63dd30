"""Resize and crop as torchvision and Paddle do: one of Pillow's filters on the whole image, then a crop.

:func:`resized_crop` computes ``image.resize(size).crop(box)`` bit by bit at less cost. Pillow resizes one axis after
the other and rounds samples to 8 bits in between. Each pass is a separate call here, only for the lines that the crop
needs. Along its own axis a pass is confined to the crop if the scale is a fraction with a power of two as denominator,
as along the short side when it becomes 256 pixels: all edges and centres of Pillow's filter, and so its weights, are
then exact in its float32 and float64. Otherwise every weight depends on the whole length, so that axis is resized in
full, with black in place of the omitted lines. This holds for every filter that Pillow applies in two passes, that is
for all but ``NEAREST``; the filters differ in their support.

Pillow can also resize only a part of an image (``box``). That is faster but not bit by bit the same: Pillow keeps the
part's edges as float32, so weights are rounded differently; and from version 13 on it may resize the part's rows and
columns in the other order than the whole's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from engine import DataError
from utils.preprocess.image.images import Box, Decoded

CropStart: TypeAlias = Callable[[int, int], int]
"""Return the first pixel of a crop along one axis, given the image's and the crop's extent; negative pads."""

Order: TypeAlias = "Callable[[tuple[int, int], tuple[int, int]], bool]"
"""Return whether Pillow resizes the vertical axis first, given an image's old and new (width, height)."""

_BILINEAR = Image.Resampling.BILINEAR
SUPPORTS = {
    Image.Resampling.BOX: 0.5,
    _BILINEAR: 1.0,
    Image.Resampling.HAMMING: 1.0,
    Image.Resampling.BICUBIC: 2.0,
    Image.Resampling.LANCZOS: 3.0,
}
"""Support of each filter around a resized sample's centre, in resized samples of an image that shrinks."""
_SMALLEST_SHARE, _FEWEST_PIXELS = 0.1, 4096
"""Minimum that a crop must omit of the resized image to be worth the intermediate copies and 20 us of calls."""
_PROBES = (
    ((9, 30), (7, 26)),
    ((9, 30), (7, 25)),
    ((9, 30), (20, 29)),
    ((9, 30), (3, 40)),
    ((30, 9), (13, 5)),
    ((2, 210), (3, 9)),
)
"""Old and new sizes that distinguish the known orders: at the bound, beyond it, with a side that grows, and a strip."""


def torchvision_start(length: int, crop: int) -> int:
    """Return the offset of torchvision's center_crop: padding floors the first half, cropping rounds half to even."""
    return -((crop - length) // 2) if crop > length else round((length - crop) / 2)


def paddle_start(length: int, crop: int) -> int:
    """Return the offset of paddle's center_crop, rounded half to even when cropping and when padding."""
    return round((length - crop) / 2)


class Part(NamedTuple):
    """A part of a resized image.

    Attributes:
        size: width and height of the resized box, in pixels.
        box: part of the image that is resized.
        crop: left, top, right and bottom of the part in the resized box; what exceeds it is black.
    """

    size: tuple[int, int]
    box: Box
    crop: tuple[int, int, int, int]

    @property
    def is_inside(self) -> bool:
        """Whether the crop lies within the resized box."""
        left, top, right, bottom = self.crop
        return left >= 0 and top >= 0 and right <= self.size[0] and bottom <= self.size[1]


def part_of(
    decoded: Decoded, resize: tuple[int, ...], crop: tuple[int, int], crop_start: CropStart, *, fused: bool, name: str
) -> Part:
    """Return the part that a crop of the resized image is.

    Args:
        resize: length of the short side in pixels, or ``(height, width)``.
        crop: height and width of the crop in pixels; padded with black where it exceeds the resized image.
        crop_start: the framework's rule for the first pixel of the crop.
        fused: resize only the crop's pixels, if it lies within the resized image.

    Raises DataError if the resized image would have more than ``PIL.Image.MAX_IMAGE_PIXELS`` pixels.
    """
    width, height = size = _resized_size(decoded, resize, name)
    left, top = crop_start(width, crop[1]), crop_start(height, crop[0])
    part = Part(size, decoded.box, (left, top, left + crop[1], top + crop[0]))
    if fused and part.is_inside and not _is_unchanged(decoded.image, part):
        return Part(crop[::-1], _part(part.box, size, part.crop), (0, 0, *crop[::-1]))
    return part


def resize_part(image: Image.Image, part: Part, resample: Image.Resampling = _BILINEAR) -> Image.Image:
    """Return a part of a resized image, in its mode."""
    size, box, crop = part
    if _is_unchanged(image, part):
        return _cropped(image, crop)
    whole: Box = (0, 0, *image.size)
    if part.is_inside and box == whole:
        return resized_crop(image, size, crop, resample)
    return _cropped(image.resize(size, resample, box), crop)


def _is_unchanged(image: Image.Image, part: Part) -> bool:
    return part.size == image.size and part.box == (0, 0, *image.size)


def _part(box: Box, size: tuple[int, int], crop: tuple[int, int, int, int]) -> Box:
    """Return the source box of a crop of ``box`` resized to ``size``."""
    across, down = (box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]
    left, top, right, bottom = crop
    # rounding may put the last edge beyond the image, which Pillow rejects
    end = min(box[0] + right * across, box[2]), min(box[1] + bottom * down, box[3])
    return box[0] + left * across, box[1] + top * down, *end


def _resized_size(decoded: Decoded, shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return the (width, height) of torchvision's and paddle's ``Resize``; both truncate the long side."""
    left, top, right, bottom = decoded.box
    old_width, old_height = right - left, bottom - top
    if len(shape) == 2:
        height, width = shape
    elif old_width <= old_height:
        width, height = shape[0], int(shape[0] * old_height / old_width)
    else:
        width, height = int(shape[0] * old_width / old_height), shape[0]
    limit = Image.MAX_IMAGE_PIXELS
    is_resized = (width, height) != decoded.image.size
    if is_resized and limit is not None and width * height > limit:  # a 1 x 100000 strip would need gigabytes
        raise DataError(
            f"{name}: {decoded.image.width}x{decoded.image.height} would be resized to {width}x{height}, over the limit"
            f" of {limit} pixels; crop it first, or pass resize_shape as (height, width)"
        )
    return width, height


class _Axis(NamedTuple):
    """One axis of a resize by a filter of this support, of which the samples ``first`` to ``end`` are kept."""

    old: int
    new: int
    first: int
    end: int
    support: float = 1.0

    @property
    def is_dyadic(self) -> bool:
        """Whether float32 holds every edge of the resized samples exactly; also true if the length does not change."""
        denominator = self.new // math.gcd(self.old, self.new)
        return self.old == self.new or (denominator.bit_count() == 1 and self.old * denominator <= 1 << 24)

    def needed(self) -> tuple[int, int]:
        """Return the range of source samples that the kept ones depend on, up to one sample larger at either end."""
        scale = self.old / self.new
        if scale == 1:
            return self.first, self.end
        reach = max(scale, 1.0) * self.support
        low, high = (self.first + 0.5) * scale - reach, (self.end - 0.5) * scale + reach
        return max(0, math.floor(low)), min(self.old, math.ceil(high))

    def source(self) -> tuple[int, int]:
        """Return the range of source samples that must exist when this axis is resized."""
        return self.needed() if self.is_dyadic else (0, self.old)


def resized_crop(
    image: Image.Image, size: tuple[int, int], crop: tuple[int, int, int, int], resample: Image.Resampling = _BILINEAR
) -> Image.Image:
    """Return ``image.resize(size, resample).crop(crop)``, bit by bit.

    The image has the mode ``RGB`` or ``L``; ``size`` is a width and height in pixels, and ``crop`` a box within it.
    """
    support = SUPPORTS.get(resample)
    if support is None:
        return _cropped(image.resize(size, resample), crop)
    across = _Axis(image.width, size[0], crop[0], crop[2], support)
    down = _Axis(image.height, size[1], crop[1], crop[3], support)
    order = order_of_passes() if _is_worthwhile(across, down) else None
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
    """Return whether two passes are faster than the whole resize, at sizes that Pillow crops without a warning."""
    size = across.new * down.new
    left_out = size - (across.end - across.first) * (down.end - down.first)
    most = max(across.old, across.new) * max(down.old, down.new)
    limit = Image.MAX_IMAGE_PIXELS
    saves = left_out >= max(size * _SMALLEST_SHARE, _FEWEST_PIXELS)
    return saves and (across.is_dyadic or down.is_dyadic) and (limit is None or most <= limit)


def _resized(image: Image.Image, axis: _Axis, is_vertical: bool, resample: Image.Resampling) -> Image.Image:
    """Resize one axis of an image that holds the axis' source samples to the crop's part of it."""
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
    """Return a box, given its extents along an axis and across it."""
    if is_vertical:
        return lines[0], along[0], lines[1], along[1]
    return along[0], lines[0], along[1], lines[1]


def _cropped(image: Image.Image, crop: Box) -> Image.Image:
    return image if crop == (0, 0, *image.size) else image.crop(crop)


@cache
def order_of_passes() -> Order | None:
    """Return the installed Pillow's order of passes, determined by tests; ``None`` if it is unknown.

    It is the same for every filter; ``BILINEAR`` is tested, which gives other samples in the other order.
    """
    return next((order for order in _KNOWN_ORDERS if _is_followed(order)), None)


def _is_followed(order: Order) -> bool:
    for old, new in _PROBES:
        noise = np.arange(old[0] * old[1], dtype=np.uint32).reshape(old[::-1]) ** 3 * 77 >> 4
        image = Image.fromarray(noise.astype(np.uint8))
        between = (old[0], new[1]) if order(old, new) else (new[0], old[1])
        two_passes = image.resize(between, _BILINEAR).resize(new, _BILINEAR)
        if image.resize(new, _BILINEAR).tobytes() != two_passes.tobytes():  # `!=` of images imports for milliseconds
            return False
    return True


def _order_of_pillow_13(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Vertical first if the height loses more than twice as many pixels as the width."""
    lost = old[1] - new[1]
    return lost > 0 and lost > 2 * (old[0] - new[0])


def _order_of_pillow_12(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Horizontal first, unless the image is over 100 times as high as wide and loses height."""
    return old[1] > 100 * old[0] and new[1] < old[1]


def _horizontal_first(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Horizontal first, always, as in Pillow 11 and older."""
    return False


_KNOWN_ORDERS = (_order_of_pillow_13, _order_of_pillow_12, _horizontal_first)
