"""Drawing of two images side by side, each with the compared face and its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from PIL import Image, ImageDraw

from engine import Array
from utils.postprocess.image.drawn_boxes import write_name

SIDE = 320
"""Height and maximum width in pixels of each drawn image."""

GAP = 8
"""Pixels between them."""

BOX, POINTS = (255, 210, 0), ((60, 220, 255), (60, 220, 255), (120, 255, 90), (255, 120, 120), (255, 120, 120))
"""Colours: of the box; of eyes, nose and corners of the mouth."""

Drawn: TypeAlias = "tuple[Image.Image, Sequence[float] | None, Array | None, float | None]"
"""An RGB image, and the box (left, top, right, bottom) and points (5 x 2) of a face in its pixels, and its score;
``None`` if there is none."""


def draw_pair(images: Sequence[Drawn]) -> Image.Image:
    """Return images side by side at one height, with boxes, points and the detector's scores."""
    drawn = [_drawn(*one) for one in images]
    width = sum(one.width for one in drawn) + GAP * (len(drawn) - 1)
    canvas = Image.new("RGB", (width, max(one.height for one in drawn)), (24, 24, 24))
    left = 0
    for one in drawn:
        canvas.paste(one, (left, (canvas.height - one.height) // 2))
        left += one.width + GAP
    return canvas


def _drawn(image: Image.Image, box: Sequence[float] | None, points: Array | None, score: float | None) -> Image.Image:
    """Return one image within a square of :data:`SIDE`, with its box and points."""
    scale = SIDE / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    made = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(made)
    if box is not None:
        left, top, right, bottom = (edge * scale for edge in box)
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=BOX, width=2)
        if score is not None:
            write_name(pen, (left, top), f"face {score:.2f}", BOX, 2, 14, made.size)
    for (x, y), colour in zip(points.tolist() if points is not None else (), POINTS, strict=False):
        pen.ellipse((x * scale - 3, y * scale - 3, x * scale + 3, y * scale + 3), fill=colour, outline=(0, 0, 0))
    return made
