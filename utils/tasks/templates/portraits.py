"""Sample images of face verification: drawn faces with colours of hair, skin, eyes and clothes per person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

SIZE = 32
"""Height and width of the images and of the tiny network's input."""

PEOPLE = ("ada", "ben", "cleo", "dora", "emil", "finn", "gina", "hugo", "ines", "jan", "kira", "luca")

IMAGES = 4
"""Images per person; odd ones have one more row of hair."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/NAME/NAME_0001.png``; return words for the templates."""
    from PIL import Image

    chance = np.random.default_rng(1)
    for name in PEOPLE:
        (folder / "data" / name).mkdir(parents=True)
        colours = 24 * chance.integers(1, 10, (4, 3))
        for number in range(1, IMAGES + 1):
            face = _portrait(colours, number % 2, 8 * int(chance.integers(-1, 2)))
            Image.fromarray(face).save(folder / "data" / name / f"{name}_{number:04d}.png", optimize=True)
    return {"size": str(SIZE), "people": str(len(PEOPLE)), "images": str(IMAGES)}


def _portrait(colours: Array, lower: int, light: int) -> Array:
    """Return a face, H x W x 3 uint8: hair above, skin, eyes, a mouth, and clothes below."""
    hair, skin, eyes, clothes = colours
    pixels = np.empty((SIZE, SIZE, 3), np.int64)
    pixels[...] = hair
    pixels[8 + lower : 26] = skin
    pixels[26:] = clothes
    for left in (8, 20):
        pixels[13 + lower : 16 + lower, left : left + 4] = eyes
    pixels[21 + lower : 23 + lower, 11:21] = (160, 40, 40)
    found: Array = np.clip(pixels + light, 0, 255).astype(np.uint8)
    return found


"""A network of a pooling and a convolution with fixed weights that describes the drawn faces by their colours."""
