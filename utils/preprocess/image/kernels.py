"""Resize, crop and normalise in one pass with the optional C extension, with the bits of Pillow and NumPy.

:mod:`tecoinfer_modelzoo.native` describes the extension. It reads Pillow's memory through the Arrow C data interface
(Pillow 11.3 and later), so no pixels are copied before they are resized. It is used only if it gives the installed
Pillow's results on small images, which is tested once per process in less than a millisecond.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from engine import Array
from tecoinfer_modelzoo import native
from utils.preprocess.image.resizing import SUPPORTS, Part, order_of_passes

_TRIALS = (((61, 45), (41, 31), "RGB"), ((45, 80), (70, 29), "RGB"), ((34, 40), (33, 60), "L"))
"""Old and new sizes and modes of the images compared with Pillow's results: in both orders, shrunk and enlarged."""


def can_resize(resample: Image.Resampling) -> bool:
    """Return whether the extension is there, and resizes with this filter as the installed Pillow does."""
    return resample in SUPPORTS and native.kernels() is not None and _agrees(resample)


def resize_into(
    image: Image.Image, part: Part, resample: Image.Resampling, out: Array, table: Array | None = None
) -> None:
    """Write a part of a resized image into a C-contiguous array, after :func:`can_resize` returned true.

    Args:
        image: mode ``RGB`` or ``L``.
        out: without a table, height x width x 3 uint8, or height x width for ``L``. With one, 3 x height x width of the
            table's dtype.
        table: 3 x 256 float16 or float32, C-contiguous: for each channel the values of the levels.
    """
    kernels = native.kernels()
    assert kernels is not None  # noqa: S101 - can_resize returned true
    order = order_of_passes()
    kernels.resample(
        pixels(image),
        1 if image.mode == "L" else 4,
        image.size,
        part.box,
        part.size,
        part.crop,
        int(resample),
        order is not None and order(image.size, part.size),
        kernels.level(),
        table,
        out,
    )


def resized(image: Image.Image, size: tuple[int, int], resample: Image.Resampling) -> Array:
    """Return the levels of ``image.resize(size, resample)``: height x width x 3 uint8, or height x width for ``L``.

    ``size`` is a width and height in pixels. Images of other modes than ``RGB`` and ``L`` are left to Pillow.
    """
    if image.mode not in ("RGB", "L") or not can_resize(resample):
        return np.asarray(image.resize(size, resample))
    shape = size[::-1] if image.mode == "L" else (*size[::-1], 3)
    levels = np.empty(shape, np.uint8)
    resize_into(image, Part(size, (0, 0, *image.size), (0, 0, *size)), resample, levels)
    return levels


def pixels(image: Image.Image) -> Any:
    """Return the samples of an ``RGB`` (with a fourth byte) or ``L`` image: a capsule of Arrow, or a copy.

    Pillow exports images that lie in one block of its memory, by default those up to 16 MB. Its rows are padded if it
    is set to align them. It must not be asked to export an image over the memory of a file or another object, which it
    marks as read-only: Pillow 11 and 12 then end the process.
    """
    padded = Image.core.get_alignment() != 1  # type: ignore[attr-defined] # of Pillow's page "Block Allocator"
    if hasattr(image, "__arrow_c_array__") and not image.readonly and not padded:
        try:
            return image.__arrow_c_array__()[1]
        except ValueError:  # in several blocks
            return _copied(image)
    return _copied(image)


def _copied(image: Image.Image) -> bytes:
    return image.tobytes("raw", "L" if image.mode == "L" else "RGBX")


@cache
def _agrees(resample: Image.Resampling) -> bool:
    """Return whether the extension's results equal the installed Pillow's."""
    if order_of_passes() is None:
        return False
    for old, size, mode in _TRIALS:
        noise = np.arange(old[0] * old[1] * len(mode), dtype=np.uint32) ** 3 * 77 >> 4
        image = Image.frombytes(mode, old, noise.astype(np.uint8).tobytes())
        wanted = np.asarray(image.resize(size, resample))
        found = np.empty_like(wanted)
        resize_into(image, Part(size, (0, 0, *old), (0, 0, *size)), resample, found)
        if not np.array_equal(found, wanted):
            return False
    return True
