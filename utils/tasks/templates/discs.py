"""Sample images of segmentation: bright coloured discs and rings on a dark ground, and which pixels are theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

COLOURS = {"red": (225, 45, 40), "green": (40, 215, 60), "blue": (45, 60, 230)}
"""Classes after the background, and their colours; grey shapes are background."""

LABELS = ("background", *COLOURS)

GREY = (170, 170, 170)

SIZE = 64
"""Height and width of the tiny network's input."""

IMAGES = 16

SHAPES = ((64, 64), (64, 96), (48, 64), (96, 128))
"""Heights and widths of the images, in turn."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their masks in ``data/masks``; return words for the templates."""
    from PIL import Image

    from utils.palette import palette

    images, masks = folder / "data" / "images", folder / "data" / "masks"
    images.mkdir(parents=True)
    masks.mkdir()
    chance = np.random.default_rng(0)
    colours = [level for colour in palette() for level in colour]
    for index in range(IMAGES):
        pixels, classes = _image(*SHAPES[index % len(SHAPES)], chance)
        name = f"discs_{index:02}.png"
        Image.fromarray(pixels).save(images / name, optimize=True)
        mask = Image.fromarray(classes)
        mask.putpalette(colours)
        mask.save(masks / name, optimize=True)
    return {"size": str(SIZE), "labels": json.dumps(LABELS), "images": str(IMAGES)}


def _image(height: int, width: int, chance: np.random.Generator) -> tuple[Array, Array]:
    """Return an image, H x W x 3 uint8, and the class of each pixel, H x W uint8."""
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[...] = 15 + 8 * chance.integers(0, 4, (height, width, 1))  # few levels: noise makes large files
    classes = np.zeros((height, width), np.uint8)
    rows, columns = np.mgrid[:height, :width]
    paints = [*COLOURS.values(), GREY]
    for _ in range(int(chance.integers(3, 6))):
        radius = int(chance.integers(8, 16)) * max(height, width) / SIZE
        far = np.hypot(rows - chance.integers(0, height), columns - chance.integers(0, width))
        inside = (far <= radius) & (far >= chance.choice([0.0, 0.4]) * radius)
        paint = int(chance.integers(0, len(paints)))
        shade = 4 * chance.integers(-3, 4, (height, 1, 1))
        pixels[inside] = np.clip(np.array(paints[paint]) + np.broadcast_to(shade, pixels.shape), 0, 255)[inside]
        classes[inside] = (paint + 1) % len(paints)  # grey is the background
    return pixels, classes


"""A network of a pooling and a convolution with fixed weights that tells the colours of discs apart."""
