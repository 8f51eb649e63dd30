"""Lines of real handwritten digits on real photographs, with their texts.

Digits and photographs are those of :mod:`utils.datasets.synthetic.digit_scenes`, with the same split: training and
validation lines share no digit and no photograph. A line is determined by a seed and a number, on every machine with
the same packages. Lines differ in height, length, slant, ink, light, blur and noise, and neighbours may touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from engine import Array
from utils.datasets.synthetic.digit_scenes import Sources, sources, written

DIGITS = (3, 7)
"""Minimum and maximum number of digits."""

HEIGHTS = (32, 56)
"""Range of the image height in pixels."""

SHARE = (0.62, 0.86)
"""Range of the height of a digit's 8 x 8 image relative to the line."""

CONTRAST = (80.0, 170.0)
"""Range of the distance between ink and background in grey levels."""

CALM = (0.2, 0.5)
"""Range of the share of the photograph's contrast that is kept."""

BLUR, NOISE = 0.6, 6.0
"""Maximum blur and noise: standard deviations in pixels and grey levels."""


class Line(NamedTuple):
    """A line: ``image`` H x W x 3, uint8, RGB, and its ``text``."""

    image: Array
    text: str


def compose(made_of: Sources, seed: int, number: int, *, varied: bool = False) -> Line:
    """Return line ``number`` of the sequence of ``seed``, independent of earlier lines.

    ``varied`` is augmentation for training: photographs are flipped, turned and recoloured, digits stretched more.
    """
    rng = np.random.default_rng([seed, number])
    height = int(rng.integers(HEIGHTS[0], HEIGHTS[1] + 1))
    size = float(rng.uniform(*SHARE)) * height
    chosen = rng.integers(len(made_of.labels), size=int(rng.integers(DIGITS[0], DIGITS[1] + 1)))
    inks = [_digit(rng, made_of.digits[one], size, height, varied) for one in chosen]
    alpha = _in_a_row(rng, [ink for ink in inks if ink.size], height)
    text = "".join(str(made_of.labels[one]) for one, ink in zip(chosen, inks, strict=True) if ink.size)
    under = _paper(rng, made_of.photos, alpha.shape, varied)
    level, contrast = float(under.mean()), float(rng.uniform(*CONTRAST))
    dark = level - contrast >= 0 and (level + contrast > 255 or rng.random() < 0.5)
    grey = max(level - contrast, 0.0) if dark else min(level + contrast, 255.0)
    paint = np.clip(grey + rng.uniform(-25, 25, 3), 0, 255).astype(np.float32)
    under = level + np.clip(under - level, -contrast / 2, contrast / 2)  # no background pixel has the ink's grey
    drawn = under + (paint - under) * alpha[..., None]
    sharp = Image.fromarray(drawn.clip(0, 255).astype(np.uint8))
    seen = np.asarray(sharp.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, BLUR)))), np.float32)
    noise = rng.standard_normal(seen.shape, np.float32) * np.float32(rng.uniform(1, NOISE))
    return Line(np.rint(seen + noise).clip(0, 255).astype(np.uint8), text)


def training_batches(seed: int, size: int) -> Iterator[list[Line]]:
    """Yield batches of ``size`` training lines endlessly, each line once; determined by the seed."""
    made_of = sources("train")
    for start in count(0, size):
        yield [compose(made_of, seed, number, varied=True) for number in range(start, start + size)]


def _digit(rng: np.random.Generator, small: Image.Image, size: float, height: int, varied: bool) -> Array:
    """Return the ink coverage of each pixel of a digit, at most as high as the line."""
    if varied:
        small = _bent(rng, small)
    pixels = round(size * 0.92), round(size * 1.08)
    return written(rng, small, pixels)[:height]


def _bent(rng: np.random.Generator, small: Image.Image) -> Image.Image:
    """Return an 8 x 8 digit slightly sheared, stretched and shifted, with thicker or thinner strokes."""
    across, down = rng.uniform(0.85, 1.18, 2)
    shear, lean = rng.uniform(-0.22, 0.22), rng.uniform(-0.08, 0.08)
    right, below = 3.5 + rng.uniform(-0.4, 0.4, 2)
    matrix = (across, shear, right - across * 3.5 - shear * 3.5, lean, down, below - lean * 3.5 - down * 3.5)
    bent = small.transform(small.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
    grey = np.asarray(bent, np.float32) / 255
    thick: Array = np.rint(255 * grey ** float(rng.uniform(0.75, 1.3))).astype(np.uint8)
    return Image.fromarray(thick)


def _in_a_row(rng: np.random.Generator, inks: list[Array], height: int) -> Array:
    """Return height x width ink coverage (0 to 1) of digits in a row that may rise or fall."""
    gap = rng.uniform(-0.02, 0.16, len(inks)) * height
    margins = rng.uniform(0.05, 0.4, 2) * height
    lefts, at = [], float(margins[0])
    for ink, after in zip(inks, gap, strict=True):
        lefts.append(round(at))
        at += ink.shape[1] + float(after)
    alpha = np.zeros((height, round(at + float(margins[1])) + 1), np.float32)
    room = [height - ink.shape[0] for ink in inks]
    share = rng.uniform(0.3, 0.7) + np.linspace(-0.5, 0.5, len(inks)) * rng.uniform(-0.5, 0.5)
    for ink, left, free, lies in zip(inks, lefts, room, share, strict=True):
        top = int(np.clip(round(free * (lies + rng.uniform(-0.15, 0.15))), 0, free))
        there = alpha[top : top + ink.shape[0], left : left + ink.shape[1]]
        np.maximum(there, ink[:, : there.shape[1]], out=there)
    return alpha


def _paper(rng: np.random.Generator, photos: list[Image.Image], shape: tuple[int, ...], varied: bool) -> Array:
    """Return a strip of a photograph, H x W x 3, float32 grey levels, with reduced contrast."""
    height, width = shape
    photo = photos[rng.integers(len(photos))]
    scale = float(rng.uniform(1.0, min(3.0, photo.height / height, photo.width / width)))
    wide, tall = width * scale, height * scale
    left, top = float(rng.uniform(0, photo.width - wide)), float(rng.uniform(0, photo.height - tall))
    box = (left, top, min(left + wide, photo.width), min(top + tall, photo.height))
    strip = np.asarray(photo.resize((width, height), Image.Resampling.BILINEAR, box, reducing_gap=2.0), np.float32)
    if varied:
        strip = strip[:: int(rng.choice((1, -1))), :: int(rng.choice((1, -1)))][..., rng.permutation(3)]
        strip = 255 - strip if rng.random() < 0.5 else strip
    middle = strip.mean(axis=(0, 1))
    calm = middle + (strip - middle) * np.float32(rng.uniform(*CALM))
    slope = np.linspace(-1, 1, width, dtype=np.float32)[None, :, None] * np.float32(rng.uniform(-0.15, 0.15))
    return np.asarray((calm * (1 + slope)).clip(0, 255), np.float32)
