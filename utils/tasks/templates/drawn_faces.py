"""Sample images of face detection: drawn yellow faces on a dark ground, and where they and their points lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

SIZE = 64
"""Height and width of the tiny network's input."""

SIDE = 16
"""Diameter of a face in pixels of the input."""

POINTS = ((0.3, 0.35), (0.7, 0.35), (0.5, 0.55), (0.35, 0.75), (0.65, 0.75))
"""Eyes, nose and corners of the mouth as shares of the box: x, y."""

FACE, OTHERS = (240, 205, 50), ((70, 90, 220), (170, 170, 170))
"""Colour of a face, and of other discs."""

IMAGES = 24

SHAPES = ((64, 64), (64, 64), (48, 64), (128, 128))
"""Heights and widths of the images, in turn."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their faces in ``data/label.txt``; return words for the templates."""
    from PIL import Image

    (folder / "data" / "images").mkdir(parents=True)
    chance = np.random.default_rng(0)
    lines = []
    for index in range(IMAGES):
        image, boxes = _image(*SHAPES[index % len(SHAPES)], chance, with_faces=index % 6 != 5)
        name = f"faces_{index:02}.png"
        Image.fromarray(image).save(folder / "data" / "images" / name, optimize=True)
        lines.append(f"# {name}")
        for left, top, side in boxes:
            points = [(left + x * side, top + y * side) for x, y in POINTS]
            lines.append(" ".join([f"{left} {top} {side} {side}", *(f"{x:.1f} {y:.1f} 0" for x, y in points)]))
    (folder / "data" / "label.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"size": str(SIZE), "side": str(SIDE), "points": repr(POINTS), "images": str(IMAGES)}


def _image(
    height: int, width: int, chance: np.random.Generator, with_faces: bool
) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return an image, H x W x 3 uint8, and left, top and side of its faces."""
    unit = max(height, width) // SIZE
    side = SIDE * unit
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[...] = 15 + 8 * chance.integers(0, 4, (height, width, 1))  # few levels: noise makes large files
    rows, columns = np.mgrid[:height, :width]
    taken: list[tuple[int, int]] = []
    boxes = []
    for number in range(6):
        left, top = (int(chance.integers(0, length - side + 1)) for length in (width, height))
        if any(abs(left - x) < 1.5 * side and abs(top - y) < 1.5 * side for x, y in taken):
            continue
        taken.append((left, top))
        disc = np.hypot(columns + 0.5 - left - side / 2, rows + 0.5 - top - side / 2) <= side / 2
        real = with_faces and number % 3 != 2
        pixels[disc] = FACE if real else OTHERS[number % 2]
        if not real:
            continue
        boxes.append((left, top, side))
        for x, y in POINTS:
            near = np.hypot(columns + 0.5 - left - x * side, rows + 0.5 - top - y * side) <= 0.08 * side
            pixels[near & disc] = (40, 30, 20)
    return pixels, boxes


"""A detector of yellow faces of one size, by fixed convolution and pooling."""
