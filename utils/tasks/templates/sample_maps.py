"""Sample images of ``teco new`` whose ground truth is another image or a map; each ``fill_*`` returns words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array
from utils.tasks import Template

# --------- image restoration: smooth shapes, and the same at half the size

TILE = 32
"""Height and width of the tiny network's input."""

HIGH_SIZES = ((64, 64), (64, 96), (96, 128))
"""Heights and widths of the originals, in turn; the second and third are cut into tiles."""

RESTORED = 12
"""Number of images."""


def fill_restored(folder: Path) -> Mapping[str, str]:
    """Draw originals into ``data/HR``, and each at half the size into ``data/LR_bicubic/X2``."""
    from PIL import Image

    high, low = folder / "data" / "HR", folder / "data" / "LR_bicubic" / "X2"
    high.mkdir(parents=True)
    low.mkdir(parents=True)
    chance = np.random.default_rng(0)
    for index in range(RESTORED):
        image = Image.fromarray(_hills(*HIGH_SIZES[index % len(HIGH_SIZES)], chance))
        image.save(high / f"hills_{index:02}.png", optimize=True)
        half = image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC)
        half.save(low / f"hills_{index:02}x2.png", optimize=True)
    return {"size": str(TILE), "images": str(RESTORED)}


def _hills(height: int, width: int, chance: np.random.Generator) -> Array:
    """Return an image of coloured hills with soft slopes, H x W x 3 uint8."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.full((height, width, 3), 24.0)
    for _ in range(6):
        far = np.hypot(rows - chance.integers(0, height), columns - chance.integers(0, width))
        pixels += np.clip(1.5 - far / chance.uniform(8, 24), 0, 1)[..., None] * chance.integers(-20, 120, 3)
    found: Array = np.rint(pixels).clip(0, 255).astype(np.uint8)
    return found


# --------- dense regression: boxes in fog, which is lighter the farther they are

FOG = 5.0
"""Distance in metres at which the fog has taken all but 1/e of the darkness."""

VIEW = 64
"""Height and width of the tiny network's input."""

DEPTH_SIZES = ((64, 64), (64, 96), (96, 128))
"""Heights and widths of the images, in turn."""

DEPTHS = 12
"""Number of images."""


def fill_depths(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/rgb``, with depth in millimetres in ``data/depth``, 0 where it is unknown."""
    from PIL import Image

    images, depths = folder / "data" / "rgb", folder / "data" / "depth"
    images.mkdir(parents=True)
    depths.mkdir()
    chance = np.random.default_rng(0)
    for index in range(DEPTHS):
        depth = _boxes(*DEPTH_SIZES[index % len(DEPTH_SIZES)], chance)
        light = 255 * (1 - np.exp(-depth / FOG))
        tint = light[..., None] + np.array([6.0, 0.0, -6.0])
        Image.fromarray(np.rint(tint).clip(0, 255).astype(np.uint8)).save(images / f"fog_{index:02}.png", optimize=True)
        levels = np.rint(1000 * depth).astype(np.uint16)
        levels[:2] = 0
        Image.fromarray(levels).save(depths / f"fog_{index:02}.png", optimize=True)
    return {"size": str(VIEW), "images": str(DEPTHS), "fog": str(FOG)}


def _boxes(height: int, width: int, chance: np.random.Generator) -> Array:
    """Return the depth of boxes before a wall in metres, H x W float64."""
    depth = np.full((height, width), 9.0)
    for near in np.sort(chance.uniform(1.5, 8.0, 5))[::-1]:
        tall, wide = (int(chance.integers(12, side // 2)) for side in (height, width))
        top, left = (int(chance.integers(0, side - part)) for side, part in ((height, tall), (width, wide)))
        depth[top : top + tall, left : left + wide] = near
    return depth


_HERE = Path(__file__).parent
IMAGE_RESTORATION = Template(_HERE / "image_restoration", fill_restored)  # doubles images by a bilinear filter
DENSE_REGRESSION = Template(_HERE / "dense_regression", fill_depths)  # takes light fog for far away
