"""Drawing of classes over an image, with a legend, and as a palette PNG."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array
from tecoinfer_modelzoo.text import shortened
from utils.palette import Colour, palette

LEAST = 320
"""Minimum of the longer side in pixels; smaller images are enlarged so that regions are visible."""

STRENGTH = 0.55
"""Opacity of a class's colour over the image."""

_BAND, _TEXT, _FRAME = (24, 24, 24), (255, 255, 255), (200, 200, 200)
_WIDEST = 30
"""Maximum characters of a class's name in the legend."""

_GOLDEN = (5**0.5 - 1) / 2
_TONES = ((0.80, 1.0), (0.55, 1.0), (0.95, 0.72))


def colour_of(place: int) -> Colour:
    """Return the colour of a class, the same in every image.

    Hues advance by the golden ratio, so that neighbours differ most, in three tones. (VOC's palette, used in mask
    files, has dark colours that are hardly visible on an image.)
    """
    saturation, value = _TONES[place // 8 % len(_TONES)]
    red, green, blue = colorsys.hsv_to_rgb(place * _GOLDEN % 1, saturation, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def overlay(image: Image.Image, classes: Array, shares: Sequence[Mapping[str, Any]], empty: int | None) -> Image.Image:
    """Return an RGB image with its classes drawn over it, with borders, and a legend below.

    Args:
        image: mode ``RGB``; a small one is enlarged by an integer factor.
        classes: H x W integers, of the image's size; negative ones are not drawn, nor the class ``empty``.
        shares: for the legend, in its order: ``class`` (number), ``label`` and ``share`` (0 to 1).
    """
    factor = max(1, LEAST // max(image.size))
    pixels = np.asarray(image, np.float32).repeat(factor, axis=0).repeat(factor, axis=1)
    labels = np.asarray(classes).repeat(factor, axis=0).repeat(factor, axis=1)
    table = np.array([colour_of(place) for place in range(int(labels.max(initial=0)) + 1)], np.float32)
    shown = labels >= 0 if empty is None else (labels >= 0) & (labels != empty)
    drawn = pixels.copy()
    grey = pixels.mean(axis=-1, keepdims=True)  # grey, so that the image's colours do not mix with those of the classes
    drawn[shown] = (1 - STRENGTH) * grey[shown] + STRENGTH * table[labels[shown]]
    border = shown & _edges(labels)
    drawn[border] = table[labels[border]]
    body = Image.fromarray(np.rint(drawn).astype(np.uint8))
    return _with_legend(body, shares, empty)


def _edges(labels: Array) -> Array:
    """Return for each pixel whether the one to its right or below has another class."""
    edges = np.zeros(labels.shape, bool)
    edges[:, :-1] |= labels[:, 1:] != labels[:, :-1]
    edges[:-1] |= labels[1:] != labels[:-1]
    return edges


def _with_legend(body: Image.Image, shares: Sequence[Mapping[str, Any]], empty: int | None) -> Image.Image:
    """Return an image with a colour, a name and a share per class below it, in columns that fit its width."""
    size = max(13, min(body.size[0], 900) // 36)
    font = ImageFont.load_default(size=size)
    texts = [f"{shortened(one['label'], _WIDEST, end=False)}  {100 * one['share']:.1f} %" for one in shares]
    widest = max((font.getlength(text) for text in texts), default=0)
    step, field = size * 3 // 2, size
    column = int(widest) + field + 2 * size
    width = max(body.width, column)
    columns = max(1, width // column)
    rows = -(-len(texts) // columns)
    canvas = Image.new("RGB", (width, body.height + rows * step + size // 2), _BAND)
    canvas.paste(body, ((width - body.width) // 2, 0))
    pen = ImageDraw.Draw(canvas)
    for index, (one, text) in enumerate(zip(shares, texts, strict=True)):
        left = size // 2 + index % columns * column
        top = body.height + size // 2 + index // columns * step
        fill = None if one["class"] == empty else colour_of(one["class"])
        pen.rectangle((left, top, left + field, top + field), fill=fill, outline=_FRAME)
        pen.text((left + field + size // 2, top - 1), text, fill=_TEXT, font=font)
    return canvas


def palette_mask(classes: Array) -> Image.Image:
    """Return the classes as an image for a PNG file: with VOC's palette, or 16 bits if a class is above 254.

    Pixels without a class are 255, or 65535.
    """
    if classes.max(initial=0) > 254:
        return Image.fromarray(np.where(classes < 0, 65535, classes).astype(np.uint16))
    mask = Image.fromarray(np.where(classes < 0, 255, classes).astype(np.uint8), "P")
    mask.putpalette([level for colour in palette() for level in colour])
    return mask
