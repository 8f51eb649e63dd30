"""A line of text that is longer than a recogniser's input, cut where it is calm, and its texts put together again."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image

from engine import Array

SQUEEZED = 1.2
"""A line this much wider than the input is squeezed; a wider one is cut."""

REACH = 1.5
"""How far from even parts a cut may lie, in heights of the line."""

CALM = 0.25
"""A column is calm where its contrast is below this share of the line's."""

BLANK = 0.15
"""A gap of this share of the line's height is a blank between words."""


def pieces(line: Image.Image, height: int, most: int) -> tuple[list[Image.Image], list[bool]]:
    """Cut a line that does not fit into an input, in the middle of gaps.

    Args:
        line: upright, of mode ``RGB`` or ``L``. height, most: of the input in pixels.

    Returns:
        The pieces from left to right, one where the line fits, and of each gap between two whether it is as wide as a
        blank.
    """
    wide, tall = line.size
    if wide * height <= SQUEEZED * most * tall:
        return [line], []
    # a cut may lie off the even parts by REACH on both sides, so a piece may be longer than they are by twice that
    count = math.ceil(wide * height / (tall * max(most / 2, most - 2 * REACH * height)))
    levels = np.asarray(line.convert("L"), np.int16)
    contrast = levels.max(axis=0) - levels.min(axis=0)
    calm = contrast <= contrast.min() + CALM * (float(contrast.max()) - contrast.min())
    reach = min(round(REACH * tall), wide // (3 * count))
    gaps = [_gap(calm, round(i * wide / count), reach) for i in range(1, count)]
    cuts = [0, *((first + last) // 2 for first, last in gaps), wide]
    parts = [line.crop((left, 0, right, tall)) for left, right in pairwise(cuts)]
    return parts, [last - first >= BLANK * tall for first, last in gaps]


def _gap(calm: Array, middle: int, reach: int) -> tuple[int, int]:
    """Return the widest run of calm columns around a place, from and up to where; the place itself where none is."""
    low = max(1, middle - reach)
    part = calm[low : middle + reach + 1]
    change = np.flatnonzero(np.diff(part.astype(np.int8), prepend=0, append=0))
    starts, ends = change[::2], change[1::2]
    if not len(starts):
        return middle, middle
    best = int(np.argmax(ends - starts))
    return low + int(starts[best]), low + int(ends[best])


def joined(texts: Sequence[str], blanks: Sequence[bool]) -> str:
    """Return the texts of a line's pieces as one, with a blank in gaps that are one; Chinese has none."""
    result = texts[0]
    for text, blank in zip(texts[1:], blanks, strict=True):
        ends = (result[-1:], text[:1])
        narrow = all(end and not end.isspace() and unicodedata.east_asian_width(end) not in "WF" for end in ends)
        result += " " * (blank and narrow) + text
    return result
