"""Text lines longer than a recogniser's input: cut at gaps, and their texts joined again."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image

from engine import Array

SQUEEZED = 1.2
"""Lines up to this many times as wide as the input are squeezed; wider ones are cut."""

REACH = 1.5
"""Maximum distance of a cut from equal parts, in heights of the line."""

CALM = 0.25
"""Share of the line's contrast below which a column counts as part of a gap."""

BLANK = 0.15
"""Minimum width of a gap that separates words, in heights of the line."""


def pieces(line: Image.Image, height: int, most: int) -> tuple[list[Image.Image], list[bool]]:
    """Cut an upright line that does not fit into an input, ``most`` pixels wide, in the middle of gaps.

    Returns the pieces from left to right (one if the line fits), and for each gap between two whether it separates
    words.
    """
    wide, tall = line.size
    if wide * height <= SQUEEZED * most * tall:
        return [line], []
    # a cut may lie REACH from equal parts at both ends, so a piece may be longer than they are by twice that
    count = math.ceil(wide * height / (tall * max(most / 2, most - 2 * REACH * height)))
    levels = np.asarray(line.convert("L"), np.int16)
    contrast = levels.max(axis=0) - levels.min(axis=0)
    is_gap = contrast <= contrast.min() + CALM * (float(contrast.max()) - contrast.min())
    reach = min(round(REACH * tall), wide // (3 * count))
    gaps = [_gap(is_gap, round(i * wide / count), reach) for i in range(1, count)]
    cuts = [0, *((first + last) // 2 for first, last in gaps), wide]
    parts = [line.crop((left, 0, right, tall)) for left, right in pairwise(cuts)]
    return parts, [last - first >= BLANK * tall for first, last in gaps]


def _gap(is_gap: Array, middle: int, reach: int) -> tuple[int, int]:
    """Return first and last column of the widest gap near a column, or that column twice if there is none."""
    low = max(1, middle - reach)
    part = is_gap[low : middle + reach + 1]
    change = np.flatnonzero(np.diff(part.astype(np.int8), prepend=0, append=0))
    starts, ends = change[::2], change[1::2]
    if not len(starts):
        return middle, middle
    best = int(np.argmax(ends - starts))
    return low + int(starts[best]), low + int(ends[best])


def joined(texts: Sequence[str], blanks: Sequence[bool]) -> str:
    """Join the texts of a line's pieces, with spaces in gaps between words except next to Chinese characters."""
    result = texts[0]
    for text, blank in zip(texts[1:], blanks, strict=True):
        ends = (result[-1:], text[:1])
        narrow = all(end and not end.isspace() and unicodedata.east_asian_width(end) not in "WF" for end in ends)
        result += " " * (blank and narrow) + text
    return result
