"""Drawing of a page with its detected lines, and next to it their texts at the same positions."""

from __future__ import annotations

import colorsys
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array
from utils.fonts import Chosen, font_for
from utils.postprocess.text.rectangles import smallest_rectangle

LARGEST = 2400
"""Maximum of a drawn page's longer side in pixels; larger ones are reduced."""

SIZE = 40
"""Font size of texts before they are scaled to their lines."""

_PAPER, _INK, _GAP = (255, 255, 255), (20, 20, 20), 8


def draw_page(image: Image.Image, lines: Sequence[Mapping[str, Any]], font: str | None = None) -> Image.Image:
    """Return an RGB page with numbered outlines, and at its right the texts of the lines.

    Lines have ``text``, and ``outline`` or ``points`` (N x 2 in pixels of the page). The font has all characters, or is
    the given file (:func:`utils.fonts.font_for`). A line with characters that no available font has is drawn as its
    number and a note in place of the text.
    """
    scale = min(1.0, LARGEST / max(image.size))
    page = image if scale == 1 else image.resize((round(image.width * scale), round(image.height * scale)))
    chosen = font_for("".join(line["text"] for line in lines), SIZE, font)
    if chosen.missing:
        warnings.warn(
            f"no font here can draw {len(chosen.missing)} characters, such as {chosen.missing[:5]!r}: their lines are "
            "drawn as numbers; name a font file that has them with --font",
            stacklevel=2,
        )
    canvas = Image.new("RGB", (2 * page.width + _GAP, page.height), _PAPER)
    canvas.paste(page, (0, 0))
    pen, small = ImageDraw.Draw(canvas), ImageFont.load_default(size=max(13, page.width // 70))
    for number, line in enumerate(lines, 1):
        outline = np.array(line.get("outline") or line["points"], np.float64) * scale
        colour = _colour(number)
        pen.polygon([(x, y) for x, y in outline.tolist()], outline=colour, width=2)
        _write(canvas, _shown(line["text"], number, chosen), outline + np.array([page.width + _GAP, 0]), chosen)
        for shift in (0, page.width + _GAP):
            left, top = (outline[0] + np.array([shift, 0])).tolist()
            place, anchor = (max(shift, left), max(0, top)), "lb" if top > 20 else "lt"
            pen.text(place, str(number), fill=colour, font=small, anchor=anchor)
    return canvas


def _shown(text: str, number: int, chosen: Chosen) -> str:
    lacking = sum(character in chosen.missing for character in text)
    return f"{number}: ({lacking} characters without a font)" if lacking else text


def _write(canvas: Image.Image, text: str, outline: Array, chosen: Chosen) -> None:
    """Write a text into the rectangle around an outline, as large as fits, and rotated like it."""
    left, top, right, bottom = (math.floor(edge) for edge in chosen.font.getbbox(text))
    if right <= left or bottom <= top:
        return
    mask = Image.new("L", (right - left + 2, bottom - top + 2), 0)
    ImageDraw.Draw(mask).text((1 - left, 1 - top), text, fill=255, font=chosen.font)
    box = smallest_rectangle(outline)
    run = outline[len(outline) // 2 - 1] - outline[0]  # along the upper side, the direction of reading
    if abs(float(run @ box.axis)) < abs(float(run @ np.array([-box.axis[1], box.axis[0]]))):
        box = box.along(np.array([-box.axis[1], box.axis[0]]))
    scale = min(box.sides[0] / mask.width, 0.8 * box.sides[1] / mask.height)
    size = max(1, round(mask.width * scale)), max(1, round(mask.height * scale))
    angle = math.degrees(math.atan2(box.axis[1], box.axis[0]))
    turned = mask.resize(size, Image.Resampling.BOX).rotate(-angle, Image.Resampling.BICUBIC, expand=True)
    place = round(float(box.centre[0]) - turned.width / 2), round(float(box.centre[1]) - turned.height / 2)
    canvas.paste(_INK, place, turned)


def _colour(number: int) -> tuple[int, int, int]:
    """Return a dark colour that differs from those of the neighbouring lines."""
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(number * 0.381966 % 1, 0.9, 0.75))
    return red, green, blue
