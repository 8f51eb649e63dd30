"""Drawn pages of text with exact ground truth, to test detection and recognition.

Lines are straight, turned, upside down, along an arc, in columns, in small print, or absent. Results do not transfer to
photographs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from engine import Array

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

ARC_STEPS = 12
"""Steps of an arc's outline."""


class Word(NamedTuple):
    """A line of a page: its text and outline, 2N x 2 (x, y), the upper side forwards, the lower one backwards."""

    text: str
    outline: Array


class Page(NamedTuple):
    """A drawn page: grey levels, H x W uint8, and its lines in reading order."""

    pixels: Array
    lines: list[Word]


class Paper:
    """A sheet to draw lines on; its grey ``level`` gets darker towards a corner, and ``seed`` is that of its grain."""

    def __init__(self, size: tuple[int, int], level: int = 245, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._image = Image.new("L", size, level)
        self.lines: list[Word] = []

    def line(
        self, text: str, font: Font, place: tuple[float, float], *, angle: float = 0.0, ink: int = 30
    ) -> tuple[float, float]:
        """Draw a line, turned clockwise by degrees about its upper left corner ``place``; return its width, height."""
        mask, width, height = _mask(text, font)
        turn = math.radians(angle)
        along, down = np.array([math.cos(turn), math.sin(turn)]), np.array([-math.sin(turn), math.cos(turn)])
        corner = np.array(place, np.float64)
        outline = np.stack(
            [corner, corner + along * width, corner + along * width + down * height, corner + down * height]
        )
        self._paste(mask, corner + along * (width / 2) + down * (height / 2), angle, ink)
        self.lines.append(Word(text, outline))
        return width, height

    def arc(
        self, text: str, font: Font, centre: tuple[float, float], radius: float, *, middle: float = -90.0, ink: int = 30
    ) -> None:
        """Draw a line along a circle (that of the baseline), letters outwards, read clockwise.

        ``middle`` is the position of the line's centre, in degrees clockwise from the right; -90 is the top.
        """
        parts = [(character, *_mask(character, font, text)) for character in text]
        advances = [float(font.getlength(text[: i + 1])) - float(font.getlength(text[:i])) for i in range(len(text))]
        height = float(parts[0][3])
        place, start = np.array(centre), math.radians(middle) - sum(advances) / (2 * radius)
        angle = start
        for (_, mask, _, _), advance in zip(parts, advances, strict=True):
            at = angle + advance / (2 * radius)
            angle += advance / radius
            outwards = np.array([math.cos(at), math.sin(at)])
            self._paste(mask, place + outwards * (radius + height / 2), math.degrees(at) + 90, ink)
        turns = np.linspace(start, angle, ARC_STEPS + 1)
        circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
        upper, lower = place + circle * (radius + height), place + circle * radius
        self.lines.append(Word(text, np.concatenate([upper, lower[::-1]])))

    def page(self, *, grain: float = 4.0, blur: float = 0.4, shade: float = 20.0) -> Page:
        """Return the page with the effects of a scanner: slight blur, a gradient towards a corner, grain."""
        image = self._image.filter(ImageFilter.GaussianBlur(blur)) if blur else self._image
        levels = np.asarray(image, np.float32)
        height, width = levels.shape
        slope = np.linspace(0, 1, height, dtype=np.float32)[:, None] * np.linspace(0, 1, width, dtype=np.float32)
        levels = levels - shade * slope + self._random.normal(0, grain, levels.shape).astype(np.float32)
        return Page(levels.clip(0, 255).round().astype(np.uint8), list(self.lines))

    def _paste(self, mask: Image.Image, middle: Array, angle: float, ink: int) -> None:
        """Draw a mask, rotated clockwise about its centre, with its centre at a place."""
        turned = mask.rotate(-angle, Image.Resampling.BICUBIC, expand=True) if angle % 360 else mask
        left, top = (round(float(at) - size / 2) for at, size in zip(middle, turned.size, strict=True))
        self._image.paste(ink, (left, top), turned)


def _mask(text: str, font: Font, whole: str | None = None) -> tuple[Image.Image, float, float]:
    """Return a text as a mask, with its width and height; ``whole``: the text that determines the height."""
    left, top, right, bottom = font.getbbox(text)
    if whole is not None:
        _, top, _, bottom = font.getbbox(whole)
        left, right = 0, font.getlength(text)
    width, height = max(1, math.ceil(right - left)), max(1, math.ceil(bottom - top))
    mask = Image.new("L", (width, height), 0)
    ImageDraw.Draw(mask).text((-left, -top), text, fill=255, font=font)
    return mask, float(width), float(height)


def column(paper: Paper, texts: Sequence[str], font: Font, place: tuple[float, float], pitch: float) -> None:
    """Draw lines below one another, ``pitch`` pixels from top to top."""
    for i, text in enumerate(texts):
        paper.line(text, font, (place[0], place[1] + i * pitch))
