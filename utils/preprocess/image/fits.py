"""Placement of images in the input of detectors outside the YOLO family, as in their own frameworks.

=========== ============================================================================ =======================
kind        placement                                                                    used by
=========== ============================================================================ =======================
``stretch`` resized to the input's height and width, each axis separately                SSD, RT-DETR, OWL-ViT
``shorter`` the shorter side to a length, the longer one limited; padded at the right    RetinaNet, FCOS, DETR
            and the bottom to a multiple, or to the input
``square``  padded to a square at the right and the bottom, blurred, to the input's size OWLv2
=========== ============================================================================ =======================

Interpolation is torchvision's for tensors (``plain``: floats, between neighbouring pixels) or Pillow's (antialiased).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine import Array, ConfigError
from utils.preprocess.image import kernels
from utils.preprocess.image.letterbox import Geometry

KINDS = ("stretch", "shorter", "square")
ROUNDINGS = ("torchvision", "transformers")


class Fit(NamedTuple):
    """Placement of an image in an input.

    Attributes:
        kind: one of :data:`KINDS`.
        plain: interpolate like torchvision for tensors; else with Pillow.
        shorter, longer: for ``shorter``: the lengths in pixels.
        multiple: for ``shorter``: height and width of an input of open size are padded to multiples of this.
        rounding: for ``shorter``: the library whose rounding to whole pixels is used.
    """

    kind: str = "stretch"
    plain: bool = False
    shorter: int = 800
    longer: int = 1333
    multiple: int = 32
    rounding: str = ROUNDINGS[0]

    @classmethod
    def read(cls, found: Any, ckpt: object) -> Fit:
        """Return the fit stored by an export as an object of these fields. Raises ConfigError if it is invalid."""
        try:
            fit = cls(**found)
        except TypeError as error:
            raise cls._wrong(found, ckpt) from error
        numbers = (fit.shorter, fit.longer, fit.multiple)
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers)
        if fit.kind not in KINDS or fit.rounding not in ROUNDINGS or not isinstance(fit.plain, bool) or not whole:
            raise cls._wrong(found, ckpt)
        return fit

    @staticmethod
    def _wrong(found: Any, ckpt: object) -> ConfigError:
        return ConfigError(f"{ckpt}: metadata 'detection': fit {found!r} is invalid; export the model again")


def fitted(
    image: Image.Image, fit: Fit, size: tuple[int, int] | None, interpolation: str = "bilinear"
) -> tuple[Array, Geometry, tuple[int, int]]:
    """Return an RGB image as floats for an input, and its position there.

    The floats are 3 x h x w float32 in 0..255, the resized image without the padding of the input, which the caller
    adds; next are its geometry, and the height and width of the input. ``interpolation`` is Pillow's filter, one of
    :data:`~utils.preprocess.image.modes.INTERPOLATIONS`. Raises ConfigError if the input's size is open (``None``),
    which only ``shorter`` supports.
    """
    width, height = image.size
    if fit.kind == "shorter":
        inner = _shorter(width, height, fit, size)
        canvas = size or (_up(inner[0], fit.multiple), _up(inner[1], fit.multiple))
    elif size is None:
        raise ConfigError("the input may have any height and width; say which with --input_size")
    else:
        inner = canvas = size
    geometry = Geometry(width, height, inner[1] / width, inner[0] / height, 0, 0)
    if fit.kind == "square":
        side = max(width, height)
        square = np.zeros((side, side, 3), np.float32)
        square[:height, :width] = np.asarray(image, np.float32)
        pixels = between_pixels(_blurred(square, inner), inner)
        geometry = Geometry(width, height, inner[1] / side, inner[0] / side, 0, 0)
    elif fit.plain:
        pixels = between_pixels(np.asarray(image, np.float32), inner)
    else:
        pixels = kernels.resized(image, inner[::-1], Image.Resampling[interpolation.upper()]).astype(np.float32)
    return pixels.transpose(2, 0, 1), geometry, canvas


def _shorter(width: int, height: int, fit: Fit, size: tuple[int, int] | None) -> tuple[int, int]:
    """Return height and width of the resized image, which fits into ``size`` if that is given."""
    low, high = min(width, height), max(width, height)
    if fit.rounding == ROUNDINGS[0]:
        scale = min(fit.shorter / low, fit.longer / high)
        if size is not None:
            scale = min(scale, size[0] / height, size[1] / width)
        return max(1, math.floor(height * scale)), max(1, math.floor(width * scale))
    asked = fit.shorter if high / low * fit.shorter <= fit.longer else fit.longer * low / high
    if size is not None:
        asked = min(asked, low * size[0] / height, low * size[1] / width)
    short, long = max(1, round(asked)), max(1, int(asked * high / low))
    if low == short:
        short, long = low, high
    return (short, long) if height <= width else (long, short)


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def between_pixels(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize height x width x C float32 to a height and width, bilinearly between the nearest pixels.

    Pixels lie at half-integer coordinates: ``torch.nn.functional.interpolate(mode="bilinear", align_corners=False)``
    without antialiasing, with coordinates in float32.
    """
    top, bottom, down = _neighbours(pixels.shape[0], size[0])
    left, right, along = _neighbours(pixels.shape[1], size[1])
    lines = pixels[top] * (1 - down)[:, None, None] + pixels[bottom] * down[:, None, None]
    return np.asarray(lines[:, left] * (1 - along)[:, None] + lines[:, right] * along[:, None])


def _neighbours(length: int, new: int) -> tuple[Array, Array, Array]:
    """Return for each new pixel of an axis the two pixels around it, and its distance from the first, float32."""
    scale = np.float32(length) / np.float32(new)
    place = np.maximum((np.arange(new, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5), np.float32(0))
    before = np.minimum(place.astype(np.int64), length - 1)
    return before, np.minimum(before + 1, length - 1), place - before.astype(np.float32)


def _blurred(pixels: Array, size: tuple[int, int]) -> Array:
    """Blur an image before it shrinks by a factor f, along both axes: a Gaussian with sigma (f - 1) / 2."""
    for axis, new in enumerate(size):
        sigma = max(0.0, (pixels.shape[axis] / new - 1) / 2)
        if sigma > 0:
            pixels = _gaussian(pixels, sigma, axis)
    return pixels


def _gaussian(pixels: Array, sigma: float, axis: int) -> Array:
    """Blur along one axis with a kernel of three sigmas to each side; the image is reflected at its edges."""
    reach = math.ceil(3 * sigma)
    steps = np.arange(-reach, reach + 1, dtype=np.float32)
    weights = np.exp(-0.5 * (steps / np.float32(sigma)) ** 2)
    weights /= weights.sum()
    room = [(reach, reach) if i == axis else (0, 0) for i in range(pixels.ndim)]
    wide = np.pad(pixels, room, mode="reflect")
    count = pixels.shape[axis]
    places = [slice(None)] * pixels.ndim
    result = np.zeros_like(pixels)
    for start, weight in enumerate(weights):
        places[axis] = slice(start, start + count)
        result += weight * wide[tuple(places)]
    return result
