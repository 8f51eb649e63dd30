"""Pictures of one line of text as a recogniser's input: to its height, the width by the picture's own proportions.

The width is rounded up, at most ``most``, beyond which a line is squeezed, as PaddleOCR has it; what a line lacks of
the input is filled at its right end with 0 after the normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from engine import Array, ConfigError
from utils.preprocess.image.images import to_rgb
from utils.preprocess.image.letterbox import between_pixels
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
"""What samples in 0..1 become: mean and standard deviation of red, green and blue."""


@dataclass(frozen=True)
class LineForm:
    """How lines become an input. The defaults are PP-OCR's.

    Attributes:
        height: of the input in pixels.
        least, most: width of an input at least and at most, in pixels; equal where it is fixed.
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

    def width(self, picture: tuple[int, int]) -> int:
        """Return the width to resize a picture of this width and height to."""
        wide, tall = picture
        return max(1, min(-(-self.height * wide // tall), self.most))

    def room(self, width: int) -> int:
        """Return the width of the input that a resized line of this width is put into."""
        return max(self.least, -(-width // self.multiple) * self.multiple)


def line_input(image: Image.Image, form: LineForm, dtype: str = "float32") -> tuple[Array, int]:
    """Return one line as C x height x width, and how much of the width the line takes.

    Args:
        image: of any mode, such as a line cut out of a page.
        form: how.
        dtype: of the result.

    Raises:
        DataError: the picture cannot be decoded. ConfigError: the form names what is not there.
    """
    _check(form)
    picture = to_rgb(image)
    width = form.width(picture.size)
    if form.channel_order == "GRAY":
        picture = picture.convert("L")
    levels = _resized(picture, (width, form.height), form.interpolation)
    mean, std = (np.array(values, np.float32) for values in PIXEL_VALUES[form.pixel_values])
    if form.channel_order == "GRAY":
        levels, mean, std = levels[..., None], mean.mean(keepdims=True), std.mean(keepdims=True)
    elif form.channel_order == "BGR":
        levels, mean, std = levels[..., ::-1], mean[::-1], std[::-1]
    array = np.zeros((levels.shape[-1], form.height, form.room(width)), dtype)
    array[..., :width] = ((levels.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)
    return array, width


def _resized(picture: Image.Image, size: tuple[int, int], name: str) -> Array:
    if picture.size == size:
        return np.asarray(picture)
    if name == OPENCV:
        levels = np.asarray(picture)
        return between_pixels(levels if levels.ndim == 3 else levels[..., None], size).reshape(
            *size[::-1], *levels.shape[2:]
        )
    return np.asarray(picture.resize(size, Image.Resampling[name.upper()]))


def _check(form: LineForm) -> None:
    for what, value, known in (
        ("channel order", form.channel_order, ORDERS),
        ("pixel values", form.pixel_values, PIXEL_VALUES),
        ("interpolation", form.interpolation, FILTERS),
    ):
        if value not in known:
            raise ConfigError(f"{what} {value!r} of text lines must be one of {', '.join(known)}")
