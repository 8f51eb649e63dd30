"""Drawing of two recordings, and of the similarity of their voices on a scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array

WIDTH, HEIGHT, MARGIN = 640, 96, 16
"""Pixels of a drawn recording, and of the margin."""

GROUND, RULE, TEXT = (24, 24, 24), (90, 90, 90), (255, 255, 255)
WAVES = ((60, 190, 255), (255, 170, 60))
SCORE, LIMIT = (120, 255, 90), (255, 120, 120)


def draw_voices(sounds: Sequence[tuple[Array, int]], score: float, threshold: float | None) -> Image.Image:
    """Return an image of recordings, each normalised to its maximum, and of their score, -1 to 1; NaN is not drawn.

    ``sounds`` are samples, float32 [S] mono, with their rate in Hz; ``threshold`` is the minimum score of the same
    speaker.
    """
    line = 64
    canvas = Image.new("RGB", (WIDTH + 2 * MARGIN, (HEIGHT + MARGIN) * len(sounds) + line + MARGIN), GROUND)
    pen = ImageDraw.Draw(canvas)
    longest = max(len(samples) / rate for samples, rate in sounds)
    for number, ((samples, rate), colour) in enumerate(zip(sounds, WAVES, strict=False)):
        top = MARGIN + number * (HEIGHT + MARGIN)
        seconds = len(samples) / rate
        _wave(pen, samples, (MARGIN, top, max(2, round(WIDTH * seconds / longest))), colour)
        pen.text((MARGIN + 4, top + 2), f"{seconds:.2f} s", fill=TEXT, font=ImageFont.load_default(size=13))
    _scale(pen, MARGIN + len(sounds) * (HEIGHT + MARGIN), score, threshold)
    return canvas


def _wave(pen: ImageDraw.ImageDraw, samples: Array, place: tuple[int, int, int], colour: tuple[int, int, int]) -> None:
    """Draw a recording at left, top and width: in each column from its minimum to its maximum sample."""
    left, top, width = place
    middle = top + HEIGHT // 2
    pen.line((left, middle, left + width, middle), fill=RULE)
    peak = float(np.abs(samples).max()) or 1.0
    for column, part in enumerate(np.array_split(samples / peak, width)):
        if len(part):
            low, high = float(part.min()), float(part.max())
            edges = [middle - round(edge * (HEIGHT // 2 - 2)) for edge in (high, low)]
            pen.line((left + column, edges[0], left + column, edges[1]), fill=colour)


def _scale(pen: ImageDraw.ImageDraw, top: int, score: float, threshold: float | None) -> None:
    """Draw the score on a line from 0 to 1, or from -1 if it is negative."""
    font = ImageFont.load_default(size=13)
    low = -1.0 if score < 0 else 0.0
    middle = top + 32

    def at(value: float) -> int:
        return MARGIN + round(WIDTH * (min(1.0, max(low, value)) - low) / (1 - low))

    pen.line((MARGIN, middle, MARGIN + WIDTH, middle), fill=RULE, width=2)
    for value, anchor in ((low, "lt"), (1.0, "rt")):
        pen.text((at(value), middle + 8), f"{value:g}", fill=TEXT, font=font, anchor=anchor)
    if threshold is not None:
        pen.line((at(threshold), middle - 12, at(threshold), middle + 6), fill=LIMIT, width=2)
        pen.text((at(threshold), middle + 8), f"{threshold:g}", fill=LIMIT, font=font, anchor="mt")
    if score == score:  # not NaN
        pen.ellipse((at(score) - 6, middle - 6, at(score) + 6, middle + 6), fill=SCORE)
        pen.text((at(score), middle - 12), f"{score:.2f}", fill=SCORE, font=font, anchor="mb")
