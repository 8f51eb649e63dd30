"""Drawing of a probability: a card with a bar, and text in the band below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from PIL import Image, ImageDraw

from utils.draw import save_drawn

_WIDTH, _HEIGHT, _MARGIN = 640, 72, 20
_PAPER, _TRACK, _MARK = (250, 250, 248), (222, 222, 218), (120, 120, 116)
_LOW, _HIGH = (196, 78, 82), (60, 140, 90)


def bar(share: float) -> Image.Image:
    """Return a bar that is filled to a share, 0 to 1, with a mark in its middle; it is empty for NaN."""
    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    left, right, top, bottom = _MARGIN, _WIDTH - _MARGIN, _MARGIN, _HEIGHT - _MARGIN
    draw.rectangle((left, top, right, bottom), fill=_TRACK)
    if share == share:  # not NaN
        end = left + round((right - left) * min(1.0, max(0.0, share)))
        if end > left:
            draw.rectangle((left, top, end, bottom), fill=_HIGH if share >= 0.5 else _LOW)
    middle = (left + right) // 2
    draw.line((middle, top - 6, middle, bottom + 6), fill=_MARK, width=2)
    return image


def save_card(folder: Path, title: str, share: float, lines: Sequence[str], name: str = "") -> Path:
    """Write a card as a PNG and return its path; the file's name ends in a hash if another row has that name.

    The first line has the share (0 to 1) and the title; the file's name starts with ``name``, such as a user's, and the
    title. Raises ConfigError if the folder is not writable.
    """
    stem = re.sub(r"[^\w-]+", "_", f"{name} {title}".strip()).strip("_")[:80] or "row"
    texts = [f"{100 * share:.1f} %   {title}", *lines]
    row = sha256("\n".join([name, title, *lines]).encode("utf-8", "surrogatepass")).hexdigest()
    return save_drawn(folder / row / stem, texts, folder, bar(share))
