"""Drawing of a node with its neighbours, as images or discs, coloured by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array
from utils.palette import palette

SIDE, CENTRE, AROUND = 520, 120, 72
"""Pixels of the drawing, of the node, and of a neighbour."""

MOST = 14
"""Maximum number of neighbours drawn."""

UNKNOWN = (150, 150, 150)
"""Colour of a neighbour of unknown class."""


class Spot(NamedTuple):
    """A node to draw.

    Attributes:
        text: label below it. place: class for its colour; ``None``: not known.
        image: height x width values of 0 to 1, 1 is black; ``None``: a disc.
    """

    text: str
    place: int | None
    image: Array | None = None


def drawn_node(centre: Spot, around: Sequence[Spot]) -> Image.Image:
    """Return an RGB drawing of a node and of its first :data:`MOST` neighbours."""
    canvas = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(canvas)
    shown = around[:MOST]
    middle, radius = SIDE / 2, SIDE / 2 - AROUND * 0.85
    ends = [
        (middle + radius * math.sin(angle), middle - radius * math.cos(angle))
        for angle in (2 * math.pi * place / max(1, len(shown)) for place in range(len(shown)))
    ]
    for end in ends:
        draw.line(((middle, middle), end), fill=(190, 190, 190), width=2)
    for spot, end in zip(shown, ends, strict=True):
        _spot(canvas, draw, spot, end, AROUND)
    _spot(canvas, draw, centre, (middle, middle), CENTRE)
    return canvas


def _spot(canvas: Image.Image, draw: ImageDraw.ImageDraw, spot: Spot, at: tuple[float, float], side: int) -> None:
    colors = palette()[1:]
    color = UNKNOWN if spot.place is None else colors[spot.place % len(colors)]
    left, top = round(at[0] - side / 2), round(at[1] - side / 2)
    box = (left, top, left + side, top + side)
    if spot.image is None:
        draw.ellipse(box, fill=color, outline=(60, 60, 60), width=2)
    else:
        ink = np.clip(255 * (1 - spot.image), 0, 255).astype(np.uint8)
        frame = 4 if spot.place is None else 6
        draw.rectangle((left - frame, top - frame, left + side + frame - 1, top + side + frame - 1), fill=color)
        canvas.paste(Image.fromarray(ink).resize((side, side), Image.Resampling.NEAREST), (left, top))
    font = ImageFont.load_default(size=16)
    width = draw.textlength(spot.text, font=font)
    where = at[0] - width / 2, top + side + 8
    draw.rectangle((where[0] - 3, where[1], where[0] + width + 3, where[1] + 20), fill="white")  # covers lines
    draw.text(where, spot.text, fill=(20, 20, 20), font=font)
