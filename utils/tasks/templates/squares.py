"""Sample images of detection: bright coloured squares on a dark ground, and where they lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array

COLOURS = {"red": (225, 45, 40), "green": (40, 215, 60), "blue": (45, 60, 230)}
"""Classes and colours of the squares; a grey square is not an object."""

GREY = (170, 170, 170)

SIZE = 64
"""Height and width of the tiny network's input."""

IMAGES = 24

SHAPES = ((64, 64), (64, 96), (48, 64), (96, 128))
"""Heights and widths of the images, in turn."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/`` with their boxes in ``data/val.json``; return words for the templates."""
    from PIL import Image

    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(IMAGES):
        height, width = SHAPES[index % len(SHAPES)]
        pixels, boxes = _image(height, width, chance)
        name = f"squares_{index:02}.png"
        Image.fromarray(pixels).save(folder / "data" / name, optimize=True)
        images.append({"id": index + 1, "file_name": name, "height": height, "width": width})
        annotations += [
            {"id": len(annotations) + i, "image_id": index + 1, "category_id": 1 + label, "bbox": box}
            for i, (box, label) in enumerate(boxes, start=1)
        ]
    categories = [{"id": number, "name": name} for number, name in enumerate(COLOURS, start=1)]
    content = {"images": images, "categories": categories, "annotations": annotations}
    (folder / "data" / "val.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return {"size": str(SIZE), "labels": json.dumps(list(COLOURS)), "images": str(IMAGES)}


def _image(height: int, width: int, chance: np.random.Generator) -> tuple[Array, list[tuple[list[int], int]]]:
    """Return an image, H x W x 3 uint8, and the boxes (left, top, width, height) of its squares with their classes."""
    unit = max(height, width) / SIZE
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[...] = 15 + 8 * chance.integers(0, 4, (height, width, 1))  # few levels: noise makes large files
    free = np.ones((height, width), bool)
    paints = [*COLOURS.values(), GREY]
    boxes = []
    for _ in range(int(chance.integers(2, 6))):
        side = round(int(chance.integers(9, 19)) * unit)
        top, left = (int(chance.integers(0, length - side + 1)) for length in (height, width))
        gap = round(3 * unit)
        around = (slice(max(0, top - gap), top + side + gap), slice(max(0, left - gap), left + side + gap))
        if not free[around].all():
            continue
        free[around] = False
        label = int(chance.integers(0, len(paints)))
        shade = 4 * chance.integers(-3, 4, (side, 1, 1))
        pixels[top : top + side, left : left + side] = np.clip(np.array(paints[label]) + shade, 0, 255)
        if label < len(COLOURS):
            boxes.append(([left, top, side, side], label))
    return pixels, boxes


"""A detector of coloured squares by fixed convolution and pooling."""
