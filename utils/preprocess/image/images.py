"""Pictures as models want them: decoded, upright, eight-bit RGB.

Rules, chosen so that one file gives the same pixels however it is stored:

- EXIF orientation is applied (and forgotten, so it is never applied twice).
- Alpha is dropped, not blended, also with a transparent palette, as in Pillow's (so torchvision's) ``convert("RGB")``.
- CMYK, YCbCr, LAB and HSV are converted as Pillow does; inverted Adobe CMYK JPEGs are put right by its decoder.
- Samples wider than 8 bits are scaled to 8, never clipped. ``I;16`` runs from 0 to 65535. Modes ``I`` and ``F`` do not
  say where white is, so it is the smallest of 255, 65535 and 2^31 - 1 (for ``F`` also 1.0) that holds the brightest.
  (Pillow itself keeps the high byte of 16-bit *colour*; that can differ from this rounding by one.)
- Only the first frame of an animation or a multi-page file is read; colour profiles are not applied.
"""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from engine import DataError, PictureError, is_recording, stage
from tecoinfer_modelzoo.text import reason_of
from utils.preprocess.image.opened import opened, refuse_special

_ORIENTATION_TAG = 0x0112
_ORIENTATION_KEYS = frozenset(("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"))
"""Where Pillow's ``info`` keeps what may say an orientation; a TIFF has it in its tags."""
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each EXIF orientation (EXIF 2.32, tag 0x0112)."""

_WHITES = (255.0, 65535.0, 2.0**31 - 1)
_AT_ONCE = 1 << 20
"""Samples that are scaled to 8 bits at once."""


Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


class Decoded(NamedTuple):
    """A picture ready to be resized.

    Attributes:
        image: upright and fully loaded, mode ``RGB``; or ``L``, which stands for three equal channels.
        box: where the picture lies in ``image``: all over it, except that a JPEG decoded at a reduced scale may end
            within the last pixel.
    """

    image: Image.Image
    box: Box


def open_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read a picture file: fully decoded, upright, mode ``RGB``; safe to call from several threads at once.

    Args:
        path: a file in one of the formats of :data:`~utils.preprocess.image.opened.PLUGINS`, whatever its name.

    Returns:
        The picture, with its file closed.

    Raises:
        DataError: the file is missing, empty, not a picture, truncated, damaged, holds more than
            ``PIL.Image.MAX_IMAGE_PIXELS`` pixels (a decompression bomb), or has a longer side than
            :data:`~utils.preprocess.image.opened.LONGEST_SIDE`.
    """
    return _as_rgb(decode_file(path).image)


def upright_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return width and height that :func:`open_image` gives a picture, from the head of its file; nothing is decoded.

    Raises:
        DataError: the file is missing, empty or not a picture.
    """
    with opened(path, path) as image:
        width, height = image.size
        try:
            may_turn = not _ORIENTATION_KEYS.isdisjoint(image.info) or hasattr(image, "tag_v2")
            turn = image.getexif().get(_ORIENTATION_TAG, 1) if may_turn else 1
        except Exception as error:  # decoders raise nearly anything on damaged data
            raise PictureError(f"{path}: damaged picture ({reason_of(error)}); replace the file") from error
    return (height, width) if turn in (5, 6, 7, 8) else (width, height)


def decode_file(path: str | os.PathLike[str], at_least: int | None = None) -> Decoded:
    """Read a picture file as :func:`open_image` does, but leave grey as ``L``; record stages ``disk`` and ``decode``.

    Args:
        path: as for :func:`open_image`.
        at_least: a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, by fewer DCT coefficients, as long as no side
            gets shorter than this many pixels; ``None`` decodes every pixel.

    Raises:
        DataError: as :func:`open_image`.
    """
    refuse_special(path)
    if not is_recording():  # Pillow is given the path, so it loads that format's plugin only: the faster cold start
        return _decoded(path, path, at_least)
    try:
        with stage("disk"), open(path, "rb", buffering=0) as file:
            data = file.read()
        with stage("decode"):
            return _decoded(io.BytesIO(data), path, at_least)
    except (OSError, DataError):
        return _decoded(path, path, at_least)  # fails again, in the words it has when nobody records


def decode_image(image: Image.Image, name: str = "picture") -> Decoded:
    """Return a PIL image as :func:`to_rgb` does, but leave grey as ``L``; record stage ``decode``.

    Raises:
        DataError: as :func:`to_rgb`.
    """
    with stage("decode"):
        return _loaded(image, name)


def to_rgb(image: Image.Image, name: str = "picture") -> Image.Image:
    """Return a PIL image as upright, fully loaded ``RGB`` by the rules of this module.

    Args:
        image: an image of any mode; one that is right already is returned itself, not copied.
        name: what an error message calls it.

    Raises:
        DataError: the image has no pixels, or its file turns out truncated or damaged while it is decoded.
    """
    return _as_rgb(_loaded(image, name).image)


def _decoded(
    source: str | os.PathLike[str] | io.BytesIO, path: str | os.PathLike[str], at_least: int | None
) -> Decoded:
    """Decode a file from itself or from its bytes."""
    with opened(source, path) as image:
        # Pillow's answer has the extent at the reduced scale, and is None for formats that have no such scale
        draft = image.draft(image.mode, (at_least, at_least)) if at_least else None
        if image.format == "TIFF":  # Pillow would map a file of this name to memory, with rows as wide as when turned
            image.filename = ""
        return _loaded(image, os.fspath(path), is_new=True, extent=draft and draft[1][2:])


def _loaded(
    image: Image.Image, name: str, *, is_new: bool = False, extent: tuple[float, float] | None = None
) -> Decoded:
    """Return an image loaded, upright, and ``RGB`` or ``L``; a new one is as it was opened."""
    if 0 in image.size:
        raise PictureError(f"{name}: {image.width}x{image.height} has no pixels; remove or replace it")
    try:
        image.load()
        turn = 1
        if not is_new or not _ORIENTATION_KEYS.isdisjoint(image.info) or hasattr(image, "tag_v2"):
            turn = image.getexif().get(_ORIENTATION_TAG, 1)
            image = _upright(image, turn)
        box = (0, 0, *image.size) if extent is None else _turned_box(extent, image.size, turn)
        return Decoded(image if image.mode == "L" else _as_rgb(image), box)
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise PictureError(f"{name}: truncated or damaged picture ({reason_of(error)}); replace the file") from error


def _turned_box(extent: tuple[float, float], size: tuple[int, int], turn: int) -> Box:
    """Return where a picture, stored from the top left corner on, lies in its image after an EXIF orientation."""
    width, height = extent[::-1] if turn in (5, 6, 7, 8) else extent
    left = size[0] - width if turn in (2, 3, 6, 7) else 0
    top = size[1] - height if turn in (3, 4, 7, 8) else 0
    return left, top, left + width, top + height


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    """Undo the EXIF orientation; the result no longer carries it."""
    method = _UPRIGHT.get(orientation)
    if method is None:
        return image
    upright = image.transpose(method)
    for key in ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"):
        upright.info.pop(key, None)
    return upright


def _as_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to ``RGB``."""
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "La":  # premultiplied grey: Pillow has no direct way
        return image.convert("LA").convert("RGB")
    if "transparency" in image.info:  # only a mask, which is dropped; Pillow warns or fails while translating it
        image = image.copy()
        del image.info["transparency"]
    return image.convert("RGB")


def _eight_bits(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Scale 16-bit, 32-bit or float samples to 0..255, rounded to nearest; NaN and negative samples become black."""
    if samples.dtype.itemsize == 2:
        return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)  # v * 255 / 65535, rounded
    parts = np.array_split(samples, max(1, samples.size // _AT_ONCE))  # of rows; doubles of all would take gigabytes
    brightest = max((float(part[np.isfinite(part)].max(initial=0)) for part in parts), default=0.0)
    whites = (1.0, *_WHITES) if samples.dtype.kind == "f" else _WHITES
    white = next((value for value in whites if brightest <= value), brightest)
    eight = np.empty(samples.shape, np.uint8)
    for part, own in zip(parts, np.array_split(eight, len(parts)), strict=True):
        scaled = np.nan_to_num(part.astype(np.float64) * (255.0 / white), nan=0.0, posinf=255.0, neginf=0.0)
        own[...] = np.rint(scaled.clip(0, 255))
    return eight
