"""Drawing of a recording: its waveform, the segments of speech, and their probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array

WIDTH, WAVE, CURVE, AXIS, EDGE = 1000, 160, 120, 24, 44
"""Pixels: the image's width, heights of its two parts and of the time axis, margin at the left for labels."""

PAPER, LINE, FAINT, SOUND = (255, 255, 255), (60, 60, 60), (205, 205, 205), (70, 110, 180)
SPEECH, SURE, LIMIT = (214, 236, 208), (200, 70, 30), (140, 140, 140)
"""Colours: background, frame, grid and waveform; segments of speech, the probability's curve, and the thresholds."""

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
Across: TypeAlias = Callable[[float], float]
"""Function from a time in seconds to its column."""

STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Seconds between the marks of the axis."""


def draw_sound(
    samples: Array,
    rate: int,
    segments: Sequence[tuple[float, float]],
    scores: Array,
    frame: float,
    limits: Sequence[float] = (),
) -> Image.Image:
    """Return an image of a recording.

    Args:
        samples: float32 [S], mono, -1..1, at ``rate`` Hz.
        segments: starts and ends in seconds of the shaded parts.
        scores: float [T], 0 to 1, one per ``frame`` seconds. limits: levels of them that are drawn as lines.
    """
    seconds = max(len(samples) / rate, frame)
    image = Image.new("RGB", (WIDTH, WAVE + CURVE + AXIS), PAPER)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=13)

    def across(time: float) -> float:
        return EDGE + (WIDTH - 1 - EDGE) * min(max(time / seconds, 0.0), 1.0)

    for start, end in segments:
        pen.rectangle((across(start), 0, across(end), WAVE + CURVE), fill=SPEECH)
    _time(pen, font, seconds, across)
    _wave(pen, samples)
    pen.line((EDGE, WAVE, WIDTH, WAVE), fill=LINE)
    for level in limits:
        height = WAVE + CURVE - 4 - (CURVE - 8) * level
        pen.line((EDGE, height, WIDTH, height), fill=LIMIT)
        pen.text((4, height - 8), f"{level:.2f}", fill=LIMIT, font=font)
    _curve(pen, scores, frame, across)
    for label, height in (("sound", WAVE / 2 - 8), ("1", WAVE + 2), ("0", WAVE + CURVE - 16)):
        pen.text((4, height), label, fill=LINE, font=font)
    pen.rectangle((EDGE, 0, WIDTH - 1, WAVE + CURVE), outline=LINE)
    return image


def _time(pen: ImageDraw.ImageDraw, font: Font, seconds: float, across: Across) -> None:
    step = next((one for one in STEPS if seconds / one <= 14), STEPS[-1])
    for mark in range(int(seconds / step) + 1):
        at = across(mark * step)
        pen.line((at, 0, at, WAVE + CURVE), fill=FAINT)
        if at < WIDTH - 40:
            pen.text((at + 2, WAVE + CURVE + 4), f"{mark * step:g} s", fill=LINE, font=font)


def _wave(pen: ImageDraw.ImageDraw, samples: Array) -> None:
    """Draw the minimum and maximum of every column, scaled so that the loudest sample reaches the frame."""
    columns = WIDTH - EDGE - 2
    places = np.linspace(0, len(samples), columns + 1).astype(np.int64)
    starts = np.minimum(places[:-1], max(len(samples) - 1, 0))
    scale = (WAVE / 2 - 4) / max(float(np.abs(samples).max(initial=0.0)), 1e-9)
    low, high = np.minimum.reduceat(samples, starts), np.maximum.reduceat(samples, starts)
    for column, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        at = EDGE + 1 + column
        pen.line((at, WAVE / 2 - top * scale, at, WAVE / 2 - bottom * scale), fill=SOUND)


def _curve(pen: ImageDraw.ImageDraw, scores: Array, frame: float, across: Across) -> None:
    """Draw the scores, with the maximum of those in the same column."""
    shown, apart = np.nan_to_num(scores).clip(0.0, 1.0), frame
    if len(shown) > WIDTH:
        together = -(-len(shown) // WIDTH)
        shown, apart = np.maximum.reduceat(shown, np.arange(0, len(shown), together)), frame * together
    heights = WAVE + CURVE - 4 - (CURVE - 8) * shown
    points = [(across((place + 0.5) * apart), height) for place, height in enumerate(heights.tolist())]
    if len(points) > 1:
        pen.line(points, fill=SURE, width=2)
