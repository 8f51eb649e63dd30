"""Images side by side, each with its name above it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array

GAP = 8
"""Pixels between the images."""

LEAST = 192
"""Images with shorter sides are enlarged by a whole factor, without a filter."""


def side_by_side(images: Mapping[str, Array]) -> Image.Image:
    """Return images, H x W x 3 uint8 of one size, by their names, as one RGB image."""
    height, width = next(iter(images.values())).shape[:2]
    factor = max(1, -(-LEAST // max(height, width)))
    height, width = factor * height, factor * width
    size = max(14, width // 24)
    font, head = ImageFont.load_default(size=size), 3 * size // 2
    canvas = Image.new("RGB", (len(images) * (width + GAP) - GAP, head + height), (24, 24, 24))
    pen = ImageDraw.Draw(canvas)
    for place, (name, pixels) in enumerate(images.items()):
        left = place * (width + GAP)
        pen.text((left + 2, size // 5), name, fill=(255, 255, 255), font=font)
        one = Image.fromarray(np.ascontiguousarray(pixels))
        canvas.paste(one.resize((width, height), Image.Resampling.NEAREST), (left, head))
    return canvas
