"""The one way in which the zoo opens picture files: formats that are meant, sizes that are looked at before decoding.

Pillow reads some fifty formats. For EPS it starts ``gs``, whatever program of that name comes first on ``PATH``, and a
file's name does not decide about its format. What no data set of pictures holds is therefore never tried.
"""

from __future__ import annotations

import importlib
import io
import os
from typing import TYPE_CHECKING

from PIL import Image, UnidentifiedImageError

from engine import PictureError
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import reason_of

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

PLUGINS = {
    "JPEG": "JpegImagePlugin",
    "PNG": "PngImagePlugin",
    "PPM": "PpmImagePlugin",
    "BMP": "BmpImagePlugin",
    "GIF": "GifImagePlugin",
    "WEBP": "WebPImagePlugin",
    "TIFF": "TiffImagePlugin",
}
"""Pillow's names of the formats that are read, and its modules for them. JPEG's reads the MPO of telephones too."""

_OF_ENDING = {
    **dict.fromkeys((".jpg", ".jpeg"), "JPEG"),
    **dict.fromkeys((".ppm", ".pgm", ".pbm"), "PPM"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    ".png": "PNG",
    ".bmp": "BMP",
    ".gif": "GIF",
    ".webp": "WEBP",
}

LONGEST_SIDE = 65_535
"""Pixels of a side at most, JPEG's own limit: Pillow needs 16 bytes and more for a row of one pixel."""

MOST_SCANS = 1 << 31
"""Pixels times scans of a progressive JPEG at most: every scan goes over the whole picture, and may be empty."""

NOT_READ = f"is not a picture in a format that is read here ({', '.join(PLUGINS)})"


def opened(source: str | os.PathLike[str] | io.BytesIO, path: str | os.PathLike[str]) -> ImageFile:
    """Open a picture without decoding it.

    Args:
        source: the file, or its bytes. path: what error messages call it.

    Returns:
        The picture, no larger than ``PIL.Image.MAX_IMAGE_PIXELS`` and :data:`LONGEST_SIDE` allow (``None`` lifts both).

    Raises:
        DataError: the file is missing, empty, no file, not a picture of one of :data:`PLUGINS`, or too large.
    """
    image = _identified(source, path)
    try:
        _refuse_bomb(image, source, path)
    except BaseException:
        image.close()
        raise
    return image


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Refuse what is there and no file: opening a pipe would wait for ever.

    Raises:
        DataError: it is a folder, a pipe, a socket or a device.
    """
    try:
        check_regular(path)
    except OSError as error:
        raise PictureError(f"{path}: cannot be read as a picture ({error.strerror}); remove or replace it") from error


def _identified(source: str | os.PathLike[str] | io.BytesIO, path: str | os.PathLike[str]) -> ImageFile:
    """Open a picture of any size."""
    try:
        if not isinstance(source, io.BytesIO):
            refuse_special(source)
        return _of_known(source, path)
    except FileNotFoundError as error:
        raise PictureError(f"{path}: no such picture; check the path") from error
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError(f"{path}: {NOT_READ if _size(source) else 'is empty (0 bytes)'}; replace it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError(_bomb_message(path, str(error).split(", could")[0])) from error
    except Exception as error:  # format plugins raise nearly anything on a damaged header
        raise PictureError(f"{path}: cannot be read as a picture ({reason_of(error)}); remove or replace it") from error


def _of_known(source: str | os.PathLike[str] | io.BytesIO, path: str | os.PathLike[str]) -> ImageFile:
    """Try the format that the name says, and the others only where it is none: a plugin takes milliseconds to load."""
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


def _size(source: str | os.PathLike[str] | io.BytesIO) -> int:
    return source.getbuffer().nbytes if isinstance(source, io.BytesIO) else os.path.getsize(source)


def _refuse_bomb(image: ImageFile, source: str | os.PathLike[str] | io.BytesIO, path: str | os.PathLike[str]) -> None:
    """Refuse what Pillow only warns about; the size is known from the header, before a pixel is decoded.

    Turning the warning itself into an error would need warning filters, which are shared by all threads.
    """
    limit = Image.MAX_IMAGE_PIXELS
    if limit is None:
        return
    size = f"{image.width}x{image.height}"
    if image.width * image.height > limit:
        raise PictureError(_bomb_message(path, f"{size} exceeds the limit of {limit} pixels"))
    if max(image.size) > LONGEST_SIDE:
        raise PictureError(_bomb_message(path, f"{size} exceeds the limit of {LONGEST_SIDE} pixels for a side"))
    tags = getattr(image, "tag_v2", {})
    tile = [tags.get(number, 1) for number in (322, 323)]  # TileWidth, TileLength: a whole tile is decoded at once
    if not all(isinstance(side, int) and 0 < side <= limit for side in tile) or tile[0] * tile[1] > limit:
        raise PictureError(_bomb_message(path, f"its tiles exceed the limit of {limit} pixels"))
    if image.info.get("progressive") and (scans := _scans(source)) * image.width * image.height > MOST_SCANS:
        raise PictureError(_bomb_message(path, f"{size} in {scans} scans exceeds {MOST_SCANS} pixels times scans"))


def _scans(source: str | os.PathLike[str] | io.BytesIO) -> int:
    """Return how many scans a JPEG has; within a scan's data the byte 0xFF is never followed by this one."""
    if isinstance(source, io.BytesIO):
        return source.getvalue().count(b"\xff\xda")
    with open(source, "rb") as file:
        return file.read().count(b"\xff\xda")


def _bomb_message(path: str | os.PathLike[str], reason: str) -> str:
    return f"{path}: {reason} (decompression bomb?); shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if it is trusted"
