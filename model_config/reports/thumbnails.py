"""Images embedded in a page: small copies as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine import DataError
from tecoinfer_modelzoo.extra import extra

LARGEST_SIDE = 480
"""Maximum pixels of the longer side of a copy."""


class Thumbnail(NamedTuple):
    """An image in a page: file name and data URI of its copy; the URI is empty if the image cannot be read."""

    name: str
    uri: str
    width: int = 0
    height: int = 0


def thumbnails(paths: Iterable[Path], side: int = LARGEST_SIDE) -> list[Thumbnail]:
    """Return copies of at most ``side`` pixels per side.

    Raises:
        ConfigError: Pillow is not installed.
    """
    return [_thumbnail(path, side) for path in paths]


def _thumbnail(path: Path, side: int) -> Thumbnail:
    with extra("images in the HTML report"):
        from PIL import Image

        from utils.preprocess.image.images import open_image
    try:
        image = open_image(path)
    except DataError:
        return Thumbnail(path.name, "")
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=88)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Thumbnail(path.name, f"data:image/webp;base64,{data}", *image.size)
