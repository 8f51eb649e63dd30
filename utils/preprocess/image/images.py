"""Image files, frames of videos and PIL images as models take them: decoded, upright, 8-bit RGB.

The same file gives the same pixels however it is stored:

- EXIF orientation is applied and removed, so it is never applied twice.
- Alpha is dropped, not blended, also with a transparent palette, as in Pillow's (and so torchvision's)
  ``convert("RGB")``.
- CMYK, YCbCr, LAB and HSV are converted as Pillow does; its decoder corrects inverted Adobe CMYK JPEGs.
- Samples wider than 8 bits are scaled to 8, never clipped. ``I;16`` covers 0 to 65535. Modes ``I`` and ``F`` do not
  define white, so it is the smallest of 255, 65535 and 2^31 - 1 (for ``F`` also 1.0) that is not below the maximum.
  (Pillow itself keeps the high byte of 16-bit *colour*, which can differ from this rounding by 1.)
- Only the first frame of an animation or a multi-page file is read; colour profiles are not applied.

Pillow reads some fifty formats, and a file's name does not decide which one is used; for EPS it starts the first ``gs``
on ``PATH``. Only :data:`PLUGINS` are therefore tried, and sizes are checked before pixels are decoded.
"""

from __future__ import annotations

import importlib
import io
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, UnidentifiedImageError

from engine import DataError, ImageError, is_recording, record, stage
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import reason_of
from utils.video.names import is_frame

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FilePath: TypeAlias = "str | os.PathLike[str]"
Source: TypeAlias = "str | os.PathLike[str] | io.BytesIO"
"""A file, or its bytes."""

PLUGINS = {name.upper(): f"{name}ImagePlugin" for name in ("Jpeg", "Png", "Ppm", "Bmp", "Gif", "WebP", "Tiff")}
"""Pillow's names of the supported formats, and its modules for them. JPEG includes the MPO files of telephones."""

_OF_ENDING = {
    **dict.fromkeys((".jpg", ".jpeg"), "JPEG"),
    **dict.fromkeys((".ppm", ".pgm", ".pbm"), "PPM"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    **{f".{name.lower()}": name for name in ("PNG", "BMP", "GIF", "WEBP")},
}

LONGEST_SIDE = 65_535
"""Maximum length of a side in pixels, JPEG's own limit: Pillow needs 16 bytes and more for a row of one pixel."""

MOST_SCANS = 1 << 31
"""Maximum of pixels times scans of a progressive JPEG: each scan, even an empty one, passes over the whole image."""

_UNSUPPORTED = f"is not an image in a supported format ({', '.join(PLUGINS)})"

_ORIENTATION_TAG = 0x0112
_ORIENTATION_KEYS = frozenset(("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"))
"""Keys of Pillow's ``info`` that may hold an orientation; TIFF stores it in its tags."""
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that undoes each EXIF orientation (EXIF 2.32, tag 0x0112)."""

_WHITES = (255.0, 65535.0, 2.0**31 - 1)
_AT_ONCE = 1 << 20
"""Number of samples scaled to 8 bits at once."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


class Decoded(NamedTuple):
    """An image ready to be resized.

    Attributes:
        image: upright and fully loaded, mode ``RGB``, or ``L`` for three equal channels.
        box: part of ``image`` to use: all of it, except that a JPEG decoded at a reduced scale may end within the
            last pixel.
    """

    image: Image.Image
    box: Box


def open_image(path: FilePath) -> Image.Image:
    """Read an image file in one of the formats :data:`PLUGINS`: fully decoded, upright, mode ``RGB``. Thread-safe.

    Raises DataError if the file is missing, empty, not an image, truncated, damaged, holds more than
    ``PIL.Image.MAX_IMAGE_PIXELS`` pixels (a decompression bomb), or has a side longer than :data:`LONGEST_SIDE`.
    """
    return _as_rgb(decode_file(path).image)


def upright_size(path: FilePath) -> tuple[int, int]:
    """Return the width and height of :func:`open_image`'s result, read from the file's header without decoding.

    Raises DataError if the file is missing, empty or not an image.
    """
    if is_frame(os.fspath(path)):
        return _frame(path).image.size
    with opened(path, path) as image:
        width, height = image.size
        try:
            may_turn = not _ORIENTATION_KEYS.isdisjoint(image.info) or hasattr(image, "tag_v2")
            turn = image.getexif().get(_ORIENTATION_TAG, 1) if may_turn else 1
        except Exception as error:  # decoders raise nearly anything on damaged data
            raise ImageError(f"{path}: damaged image ({reason_of(error)}); replace the file") from error
    return (height, width) if turn in (5, 6, 7, 8) else (width, height)


def decode_file(path: FilePath, at_least: int | None = None) -> Decoded:
    """Read an image file like :func:`open_image`, but keep grey as ``L``; record the stages ``disk`` and ``decode``.

    With ``at_least``, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size, from fewer DCT coefficients, as long as no side
    becomes shorter than this many pixels. A path such as ``clip.mp4#000012`` is a frame of a video
    (:mod:`utils.video`). Raises DataError as :func:`open_image` does.
    """
    if is_frame(os.fspath(path)):
        return _frame(path)
    if is_recording() and os.path.isfile(path):
        with suppress(OSError, DataError):  # then reading by path gives the error message of a run without recording
            start = time.perf_counter()
            with open(path, "rb", buffering=0) as file:
                data = file.read()
            middle = time.perf_counter()
            found = _decoded(io.BytesIO(data), path, at_least)
            record(("disk", start, middle), ("decode", middle, time.perf_counter()))
            return found
    return _decoded(path, path, at_least)


def _frame(path: FilePath) -> Decoded:
    """Read a frame of a video."""
    from utils.video.reader import frame_at

    with stage("decode"):
        frame = frame_at(os.fspath(path))
    return Decoded(frame, (0, 0, *frame.size))


def decode_image(image: FilePath | Image.Image, name: str, at_least: int | None = None) -> Decoded:
    """Return a file as :func:`decode_file` or a PIL image as :func:`to_rgb` does, but keep grey as ``L``.

    ``name`` is that of the image in errors. Raises DataError as these do, or if ``image`` has another type.
    """
    if isinstance(image, (str, os.PathLike)):
        return decode_file(image, at_least)
    if not isinstance(image, Image.Image):
        raise DataError(f"cannot preprocess a {type(image).__name__} in the list; pass paths or PIL images")
    with stage("decode"):
        return _loaded(image, name)


def to_rgb(image: Image.Image, name: str = "image") -> Image.Image:
    """Return a PIL image of any mode as upright, fully loaded ``RGB`` by the rules of this module.

    It is the image itself, not a copy, if it is so already. Raises DataError if it has no pixels, or its file is
    truncated or damaged.
    """
    return _as_rgb(_loaded(image, name).image)


def _decoded(source: Source, path: FilePath, at_least: int | None) -> Decoded:
    with opened(source, path) as image:
        # draft() returns the extent at the reduced scale, and None for formats without scales
        draft = image.draft(image.mode, (at_least, at_least)) if at_least else None
        if image.format == "TIFF":  # else Pillow maps the named file to memory, with the row length of the turned image
            image.filename = ""
        return _loaded(image, os.fspath(path), is_new=True, extent=draft and draft[1][2:])


def _loaded(
    image: Image.Image, name: str, *, is_new: bool = False, extent: tuple[float, float] | None = None
) -> Decoded:
    """Return an image loaded, upright, and ``RGB`` or ``L``; ``is_new``: just opened, with its info unchanged."""
    if 0 in image.size:
        raise ImageError(f"{name}: {image.width}x{image.height} has no pixels; remove or replace it")
    try:
        image.load()
        turn = 1
        if not is_new or not _ORIENTATION_KEYS.isdisjoint(image.info) or hasattr(image, "tag_v2"):
            turn = image.getexif().get(_ORIENTATION_TAG, 1)
            image = _upright(image, turn)
        box = (0, 0, *image.size) if extent is None else _turned_box(extent, image.size, turn)
        return Decoded(image if image.mode == "L" else _as_rgb(image), box)
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise ImageError(f"{name}: truncated or damaged image ({reason_of(error)}); replace the file") from error


def _turned_box(extent: tuple[float, float], size: tuple[int, int], turn: int) -> Box:
    """Return the box of an extent at the top left corner of an image, after the EXIF orientation ``turn``."""
    width, height = extent[::-1] if turn in (5, 6, 7, 8) else extent
    left = size[0] - width if turn in (2, 3, 6, 7) else 0
    top = size[1] - height if turn in (3, 4, 7, 8) else 0
    return left, top, left + width, top + height


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    """Undo the EXIF orientation, and remove it from the result's info."""
    method = _UPRIGHT.get(orientation)
    if method is None:
        return image
    upright = image.transpose(method)
    for key in _ORIENTATION_KEYS:
        upright.info.pop(key, None)
    return upright


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "La":  # premultiplied grey, which Pillow cannot convert directly
        return image.convert("LA").convert("RGB")
    if "transparency" in image.info:  # a mask, which is dropped; Pillow warns or fails when it converts it
        image = image.copy()
        del image.info["transparency"]
    return image.convert("RGB")


def _eight_bits(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Scale 16-bit, 32-bit or float samples to 0..255, rounded to nearest; NaN and negative samples become black."""
    if samples.dtype.itemsize == 2:
        return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)  # v * 255 / 65535, rounded
    # by rows, as float64 of the whole could take gigabytes
    parts = np.array_split(samples, max(1, samples.size // _AT_ONCE))
    brightest = max((float(part[np.isfinite(part)].max(initial=0)) for part in parts), default=0.0)
    whites = (1.0, *_WHITES) if samples.dtype.kind == "f" else _WHITES
    white = next((value for value in whites if brightest <= value), brightest)
    eight = np.empty(samples.shape, np.uint8)
    for part, own in zip(parts, np.array_split(eight, len(parts)), strict=True):
        scaled = np.nan_to_num(part.astype(np.float64) * (255.0 / white), nan=0.0, posinf=255.0, neginf=0.0)
        own[...] = np.rint(scaled.clip(0, 255))
    return eight


def opened(source: Source, path: FilePath) -> ImageFile:
    """Open an image, a file or its bytes, without decoding it; ``path`` is its name in error messages.

    It is no larger than ``PIL.Image.MAX_IMAGE_PIXELS`` and :data:`LONGEST_SIDE`; if the former is ``None``, of any
    size. Raises DataError if the file is missing, empty, not a regular file, not in a format of :data:`PLUGINS`, or too
    large.
    """
    image = _identified(source, path)
    try:
        _refuse_bomb(image, source, path)
    except BaseException:
        image.close()
        raise
    return image


def _identified(source: Source, path: FilePath) -> ImageFile:
    """Open an image of any size."""
    try:
        if not isinstance(source, io.BytesIO):
            _check_regular(source)
        return _in_known_format(source, path)
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such image; check the path") from error
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{path}: {_UNSUPPORTED if _size(source) else 'is empty (0 bytes)'}; replace it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(_bomb_message(path, str(error).split(", could")[0])) from error
    except Exception as error:  # format plugins raise nearly anything on a damaged header
        raise ImageError(f"{path}: cannot be read as an image ({reason_of(error)}); remove or replace it") from error


def _check_regular(path: FilePath) -> None:
    """Raise ImageError for a folder, pipe, socket or device; opening a pipe would block."""
    if not os.path.isfile(path):
        try:
            check_regular(path)
        except OSError as error:
            raise ImageError(f"{path}: cannot be read as an image ({error.strerror}); remove or replace it") from error


def _in_known_format(source: Source, path: FilePath) -> ImageFile:
    """Open an image in the format of the name's ending, else in any other; loading a plugin takes milliseconds."""
    first = _OF_ENDING.get(os.path.splitext(os.fspath(path))[1].lower(), "PNG")
    _load(first)
    try:
        return Image.open(source, formats=(first,))
    except UnidentifiedImageError:
        others = tuple(name for name in PLUGINS if name != first)
        for name in others:
            _load(name)
        return Image.open(source, formats=others)


def _load(name: str) -> None:
    if name not in Image.OPEN:
        importlib.import_module(f"PIL.{PLUGINS[name]}")


def _size(source: Source) -> int:
    return source.getbuffer().nbytes if isinstance(source, io.BytesIO) else os.path.getsize(source)


def _refuse_bomb(image: ImageFile, source: Source, path: FilePath) -> None:
    """Raise ImageError if the header's size exceeds a limit of which Pillow only warns.

    Turning the warning into an error would need warning filters, which all threads share.
    """
    limit = Image.MAX_IMAGE_PIXELS
    if limit is None:
        return
    size = f"{image.width}x{image.height}"
    if image.width * image.height > limit:
        raise ImageError(_bomb_message(path, f"{size} exceeds the limit of {limit} pixels"))
    if max(image.size) > LONGEST_SIDE:
        raise ImageError(_bomb_message(path, f"{size} exceeds the limit of {LONGEST_SIDE} pixels for a side"))
    if (tags := getattr(image, "tag_v2", None)) is not None:
        tile = [tags.get(number, 1) for number in (322, 323)]  # TileWidth, TileLength: a whole tile is decoded at once
        if not all(isinstance(side, int) and 0 < side <= limit for side in tile) or tile[0] * tile[1] > limit:
            raise ImageError(_bomb_message(path, f"its tiles exceed the limit of {limit} pixels"))
    if image.info.get("progressive") and (scans := _scans(source)) * image.width * image.height > MOST_SCANS:
        raise ImageError(_bomb_message(path, f"{size} in {scans} scans exceeds {MOST_SCANS} pixels times scans"))


def _scans(source: Source) -> int:
    """Return the number of scans of a JPEG: its SOS markers 0xFFDA, which do not occur within a scan's data."""
    if isinstance(source, io.BytesIO):
        return source.getvalue().count(b"\xff\xda")
    with open(source, "rb") as file:
        return file.read().count(b"\xff\xda")


def _bomb_message(path: FilePath, reason: str) -> str:
    return f"{path}: {reason} (decompression bomb?); shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if it is trusted"
