"""Drawing of boxes on an image."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

_LEAST = 320
"""Minimum of the longer side in pixels; smaller images are enlarged so that boxes and names are legible."""


def draw_boxes(image: Image.Image, objects: Sequence[Mapping[str, Any]]) -> Image.Image:
    """Return a copy of an RGB image with boxes, names, scores and points; a small one is enlarged by an integer factor.

    A name is above its box, or inside if the space above is too small. An object has ``label`` (text), ``score`` and
    ``box`` (left, top, right, bottom in pixels), highest score first; optionally ``points`` (x and y of each),
    ``lines`` (pairs of such points) and ``track`` (a number, which is drawn too, and chooses the colour).
    """
    factor = max(1, _LEAST // max(image.size))
    canvas = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    line = max(2, max(canvas.size) // 300)
    height = max(12, max(canvas.size) // 40)
    pen = ImageDraw.Draw(canvas)
    for one in reversed(objects):  # the highest score is on top
        left, top, right, bottom = (edge * factor for edge in one["box"])
        track = f"#{one['track']}" if "track" in one else ""
        colour = _colour(track or one["label"])
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
        for ends in one.get("lines", ()):
            pen.line([((x + 0.5) * factor - 0.5, (y + 0.5) * factor - 0.5) for x, y in ends], fill=colour, width=line)
        for x, y in one.get("points", ()):
            x, y = (x + 0.5) * factor - 0.5, (y + 0.5) * factor - 0.5
            pen.ellipse((x - line, y - line, x + line, y + line), fill=colour, outline=(0, 0, 0))
        text = f"{track} {one['label']} {one['score']:.2f}".lstrip()
        write_name(pen, (left, top), text, colour, line, height, canvas.size)
    return canvas


def write_name(
    pen: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    text: str,
    colour: tuple[int, int, int],
    line: int,
    height: float,
    size: tuple[int, int],
) -> None:
    """Write a box's name on a background of its colour: above the box, or inside if the space above is too small.

    ``corner`` is left and top of the box in pixels, ``line`` the width of its lines, ``height`` that of the letters,
    and ``size`` the image's width and height.
    """
    font = ImageFont.load_default(size=height)
    above = corner[1] - pen.textbbox((0, 0), text, font=font)[3] - 1
    place = (corner[0], above) if above >= 0 else (corner[0] + line, corner[1] + line)
    place = _inside(place, pen.textbbox(place, text, font=font), size)
    pen.rectangle(pen.textbbox(place, text, font=font), fill=colour)
    pen.text(place, text, fill=(0, 0, 0), font=font)


def _inside(
    place: tuple[float, float], box: tuple[float, float, float, float], size: tuple[int, int]
) -> tuple[float, float]:
    """Return a position of a text inside the image; if it is too long, its start is visible."""
    left, top = (min(0.0, edge - 1 - end) for edge, end in zip(size, box[2:], strict=True))
    return place[0] + max(left, -box[0]), place[1] + max(top, -box[1])


def _colour(label: str) -> tuple[int, int, int]:
    """Return a bright colour that depends on the text only."""
    hue = zlib.crc32(label.encode("utf-8", "surrogatepass")) % 360 / 360
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.65, 1.0))
    return red, green, blue
