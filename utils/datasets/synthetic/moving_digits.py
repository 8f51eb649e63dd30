"""Videos composed of real handwritten digits that move over a real photograph, with their boxes and identities.

Digits and photographs are those of the digit scenes (:mod:`.digit_scenes`). A digit moves in a straight line at a
constant speed, and later digits cover earlier ones. A video is determined by its movers and a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array
from utils.datasets.synthetic.digit_scenes import Sources, written

MARGIN = 0.5
"""Least visible share of a digit's box; a digit that is further outside the image counts as absent."""

CONTRAST = 110.0
"""Distance between ink and background in grey levels."""

NOISE = 3.0
"""Standard deviation of the noise of each frame in grey levels."""


class Mover(NamedTuple):
    """A digit that moves.

    Attributes:
        number: its identity. label: 0 to 9.
        ink: coverage of each pixel, h x w float32 from 0 to 1.
        start: x and y of its left upper corner in its first frame. velocity: pixels per frame.
        frames: the frames in which it is there.
    """

    number: int
    label: int
    ink: Array
    start: tuple[float, float]
    velocity: tuple[float, float]
    frames: range

    def corner(self, frame: int) -> tuple[int, int]:
        """Return x and y of its left upper corner in a frame, in whole pixels."""
        passed = frame - self.frames.start
        x, y = (place + passed * step for place, step in zip(self.start, self.velocity, strict=True))
        return round(x), round(y)


class MovingFrame(NamedTuple):
    """A frame of a video: H x W x 3 uint8 RGB, and the boxes (N x 4 int64), labels and identities of its digits."""

    image: Array
    boxes: Array
    labels: list[int]
    numbers: list[int]


class MovingDigits:
    """A video.

    Args:
        movers: the digits. background: RGB photograph of the video's size. seed: of the noise.
    """

    def __init__(self, movers: Sequence[Mover], background: Image.Image, seed: int = 0) -> None:
        self.movers, self._seed = list(movers), seed
        self._background = np.asarray(background.convert("RGB"), np.float32)

    @classmethod
    def random(
        cls, made_of: Sources, seed: int, *, side: int = 320, digits: int = 8, frames: int = 120
    ) -> MovingDigits:
        """Return a video of digits of random shape, size, direction and time, ``side`` pixels wide and high."""
        rng = np.random.default_rng([seed, side, digits, frames])
        background = made_of.photos[int(rng.integers(len(made_of.photos)))].resize((side, side))
        movers = []
        for number in range(digits):
            chosen = int(rng.integers(len(made_of.labels)))
            ink = written(rng, made_of.digits[chosen], (side // 5, side // 3))
            first = int(rng.integers(0, max(1, frames // 2)))
            length = int(rng.integers(frames // 3, frames))
            angle, speed = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0.3, 1.0)) * side / frames * 2
            across, down = (float(rng.uniform(0, side - edge)) for edge in ink.shape[::-1])
            velocity = speed * float(np.cos(angle)), speed * float(np.sin(angle))
            label = int(made_of.labels[chosen])
            movers.append(Mover(number, label, ink, (across, down), velocity, range(first, first + length)))
        return cls(movers, background, seed)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._background.shape[1], self._background.shape[0]

    def frame(self, number: int) -> MovingFrame:
        """Return a frame of the video."""
        canvas, (width, height) = self._background.copy(), self.size
        boxes, labels, numbers = list[tuple[int, int, int, int]](), list[int](), list[int]()
        for one in self.movers:
            if number not in one.frames:
                continue
            left, top = one.corner(number)
            right, bottom = left + one.ink.shape[1], top + one.ink.shape[0]
            inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
            if inside[0] >= inside[2] or inside[1] >= inside[3]:
                continue
            ink = one.ink[inside[1] - top : inside[3] - top, inside[0] - left : inside[2] - left]
            there = canvas[inside[1] : inside[3], inside[0] : inside[2]]
            there += (self._colour(one) - there) * ink[..., None]
            tight = _tight(ink)
            if tight is None or (tight[2] - tight[0]) * (tight[3] - tight[1]) < MARGIN * one.ink.size:
                continue
            boxes.append(tuple(edge + shift for edge, shift in zip(tight, inside[:2] * 2, strict=True)))  # type: ignore[arg-type]
            labels.append(one.label)
            numbers.append(one.number)
        noise = np.random.default_rng([self._seed, number]).standard_normal(canvas.shape, np.float32) * NOISE
        image = np.rint(canvas + noise).clip(0, 255).astype(np.uint8)
        return MovingFrame(image, np.array(boxes, np.int64).reshape(-1, 4), labels, numbers)

    def _colour(self, one: Mover) -> Array:
        """Return the ink of a digit: darker or lighter than the whole background."""
        level = float(self._background.mean())
        grey = level - CONTRAST if level >= 128 else level + CONTRAST
        tint = np.random.default_rng([self._seed, one.number, 1]).uniform(-25, 25, 3)
        return np.clip(grey + tint, 0, 255).astype(np.float32)


def _tight(ink: Array) -> tuple[int, int, int, int] | None:
    """Return left, top, right and bottom of the ink; ``None`` without any."""
    shown = ink >= 0.5
    rows, columns = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
