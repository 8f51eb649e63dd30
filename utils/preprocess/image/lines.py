"""Images of single text lines as a recogniser's input: resized to its height, with the proportions kept.

As in PaddleOCR, the width is rounded up and limited to ``most``, and the rest of the input at the right is 0 after
normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from engine import Array, ConfigError
from utils.preprocess.image.images import to_rgb
from utils.preprocess.image.letterbox import resized
from utils.preprocess.image.modes import INTERPOLATIONS, MEAN, STD

ORDERS = ("GRAY", "RGB", "BGR")
"""Channels of an input: one, or three in either order."""

OPENCV = "opencv"
FILTERS = (*INTERPOLATIONS, OPENCV)
"""Filters to resize with; ``opencv`` is bilinear without antialiasing."""

PIXEL_VALUES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "-1..1": ((0.5,) * 3, (0.5,) * 3),
    "0..1": ((0.0,) * 3, (1.0,) * 3),
    "0..255": ((0.0,) * 3, (1 / 255,) * 3),
    "imagenet": (MEAN, STD),
}
"""Ranges of input samples: mean and standard deviation of red, green and blue, for samples in 0..1."""


@dataclass(frozen=True)
class LineForm:
    """Form of a recogniser's input. The defaults are PP-OCR's.

    Attributes:
        height: of the input in pixels.
        least, most: minimum and maximum width of an input in pixels; equal if it is fixed.
        multiple: widths are padded to multiples of this.
        channel_order: one of :data:`ORDERS`.
        pixel_values: one of :data:`PIXEL_VALUES`. interpolation: one of :data:`FILTERS`.
    """

    height: int = 48
    least: int = 320
    most: int = 3200
    multiple: int = 1
    channel_order: str = "BGR"
    pixel_values: str = "-1..1"
    interpolation: str = OPENCV

    def width(self, size: tuple[int, int]) -> int:
        """Return the resized width of an image of this width and height."""
        wide, tall = size
        return max(1, min(-(-self.height * wide // tall), self.most))

    def room(self, width: int) -> int:
        """Return the input's width for a resized line of this width."""
        return max(self.least, -(-width // self.multiple) * self.multiple)


def line_input(image: Image.Image, form: LineForm, dtype: str = "float32") -> tuple[Array, int]:
    """Return one line, an image of any mode, as C x height x width, and the width of the line in it.

    Raises DataError if the image cannot be decoded, and ConfigError if the form has an unknown value.
    """
    _check(form)
    line = to_rgb(image)
    width = form.width(line.size)
    if form.channel_order == "GRAY":
        line = line.convert("L")
    levels = resized(line, (width, form.height), form.interpolation)
    mean, std = (np.array(values, np.float32) for values in PIXEL_VALUES[form.pixel_values])
    if form.channel_order == "GRAY":
        levels, mean, std = levels[..., None], mean.mean(keepdims=True), std.mean(keepdims=True)
    elif form.channel_order == "BGR":
        levels, mean, std = levels[..., ::-1], mean[::-1], std[::-1]
    array = np.zeros((levels.shape[-1], form.height, form.room(width)), dtype)
    array[..., :width] = ((levels.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)
    return array, width


def _check(form: LineForm) -> None:
    for what, value, known in (
        ("channel order", form.channel_order, ORDERS),
        ("pixel values", form.pixel_values, PIXEL_VALUES),
        ("interpolation", form.interpolation, FILTERS),
    ):
        if value not in known:
            raise ConfigError(f"{what} {value!r} of text lines must be one of {', '.join(known)}")
