"""Sample images of text recognition: bright coloured bars on a dark ground, each of which is a letter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

COLOURS = {"r": (225, 45, 40), "g": (40, 215, 60), "b": (45, 60, 230)}
"""Letters and the colours of their bars; the dark background is CTC's blank."""

HEIGHT, WIDTH, STEP = 16, 96, 4
"""Of the tiny network's input in pixels, and the pixels of one of its steps."""

IMAGES = 16

SCALES = (1, 2, 3)
"""Pixels of an image per pixel of the input, in turn."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their texts in ``data/rec_gt.txt``; return words for the templates."""
    from PIL import Image

    images = folder / "data" / "images"
    images.mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(IMAGES):
        pixels, text = _line(SCALES[index % len(SCALES)], chance)
        name = f"images/bars_{index:02}.png"
        Image.fromarray(pixels).save(folder / "data" / name, optimize=True)
        rows.append(f"{name}\t{text}\n")
    (folder / "data" / "rec_gt.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    words = {"height": HEIGHT, "width": WIDTH, "step": STEP, "images": IMAGES}
    return {name: str(value) for name, value in words.items()} | {"letters": json.dumps(list(COLOURS))}


def _line(scale: int, chance: np.random.Generator) -> tuple[Array, str]:
    """Return an image of bars, H x W x 3 uint8, and the letters they are."""
    letters = [str(one) for one in chance.choice(list(COLOURS), int(chance.integers(2, 6)))]
    columns = [[20, 20, 24]] * (2 * STEP)
    for letter in letters:
        columns += [list(COLOURS[letter])] * (STEP * int(chance.integers(1, 3)))
        columns += [[20, 20, 24]] * (STEP * int(chance.integers(1, 3)))
    line = np.array(columns, np.uint8)[None].repeat(HEIGHT, axis=0)
    line[:2] = line[-2:] = 20
    return line.repeat(scale, axis=0).repeat(scale, axis=1), "".join(letters)


"""A network of a pooling and a convolution with fixed weights that tells the colours of bars apart."""
