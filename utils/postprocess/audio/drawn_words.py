"""Drawing of a recording: its spectrogram, with the words below it at their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array
from utils.preprocess.audio.features import LogMel, features

SECOND, LEAST, MOST = 220, 400, 4000
"""Columns per second, and minimum and maximum of the image's columns."""

HEIGHT, AXIS, ROW = 160, 18, 20
"""Pixels: heights of the spectrogram, of the time axis and of a row of words."""

RANGE = 70.0
"""Decibels from the maximum to the darkest colour."""

PAPER, INK, MARK = (24, 24, 24), (255, 255, 255), (255, 200, 60)
Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
COLOURS = np.array([(0, 0, 0), (60, 15, 110), (190, 55, 85), (250, 150, 40), (255, 250, 200)], np.float64)
"""Colours from the minimum to the maximum."""


def draw_words(samples: Array, rate: int, words: Sequence[tuple[str, float, float]]) -> Image.Image:
    """Return an image of a recording (float32 [S], mono, -1..1) with its words, each with start and end in seconds."""
    from utils.fonts import font_for

    seconds = max(len(samples) / rate, 1e-3)
    width = int(min(max(seconds * SECOND, LEAST), MOST))
    text = "".join(word for word, _, _ in words)
    font = ImageFont.load_default(size=14) if text.isascii() else font_for(text, 14).font
    rows = _rows(words, seconds, width, font)
    count = 1 + max((row for row, _ in rows), default=0)
    image = Image.new("RGB", (width, HEIGHT + AXIS + count * ROW + 6), PAPER)
    image.paste(_spectrogram(samples, rate).resize((width, HEIGHT), Image.Resampling.BILINEAR))
    pen = ImageDraw.Draw(image)
    small = ImageFont.load_default(size=11)
    for mark in range(int(seconds * 2) + 1):
        at = round(mark / 2 / seconds * (width - 1))
        pen.line((at, HEIGHT, at, HEIGHT + 4), fill=INK)
        pen.text((at + 2, HEIGHT + 3), f"{mark / 2:g} s", fill=INK, font=small)
    for (word, start, end), (row, left) in zip(words, rows, strict=True):
        first, last = (round(time / seconds * (width - 1)) for time in (start, end))
        top = HEIGHT + AXIS + row * ROW
        pen.line((first, HEIGHT - 6, first, top + 4), fill=MARK)
        pen.rectangle((first, HEIGHT - 5, max(first + 1, last), HEIGHT - 1), fill=MARK)
        pen.text((left + 3, top + 2), word, fill=INK, font=font)
    return image


def _rows(words: Sequence[tuple[str, float, float]], seconds: float, width: int, font: Font) -> list[tuple[int, int]]:
    """Return for each word its row, the first one with room for it, and its left edge."""
    ends: list[float] = []
    found = []
    for word, start, _ in words:
        room = font.getlength(word) + 8
        left = int(max(0, min(start / seconds * (width - 1), width - room)))
        row = next((row for row, end in enumerate(ends) if end <= left), len(ends))
        ends[row : row + 1] = [left + room]
        found.append((row, left))
    return found


def _spectrogram(samples: Array, rate: int) -> Image.Image:
    window = max(32, rate // 40)
    size = 1 << (window - 1).bit_length()
    settings = LogMel(
        rate=rate, fft=2 * size, window=window, hop=max(1, rate // 200), bands=48, low=60.0, norm=False, pad="constant"
    )
    decibels = 10 * features(samples, settings)
    share = np.clip((decibels - decibels.max(initial=-100.0)) / RANGE + 1, 0, 1).T[::-1]
    places = share * (len(COLOURS) - 1)
    pixels = [np.interp(places, np.arange(len(COLOURS)), channel) for channel in COLOURS.T]
    return Image.fromarray(np.stack(pixels, axis=-1).astype(np.uint8))
