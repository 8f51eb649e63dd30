"""Write the held-out scenes of the digit segmenter: data/val/images/<number>.jpg and data/val/masks/<number>.png.

Eight more, data/samples/<number>.jpg, are samples without a mask. ``utils/datasets/synthetic/digit_scenes.py``
composes all of 360 handwritten digits and six photographs that are not in the training scenes; ``LICENSES.md`` lists
the photographs. A mask holds the class of each pixel: 0 background, 1 to 10 the digits 0 to 9. Its palette is for
display.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.progress import progress
from utils.datasets.synthetic.digit_scenes import Scene, compose, sources
from utils.pipeline import cli

SCENES = 250
SAMPLES = 8
SEED = 8
QUALITY = 90
COLOURS = (
    *("#000000", "#e6194b", "#3cb44b", "#ffe119", "#0082c8", "#f58230"),
    *("#911eb4", "#46f0f0", "#f032e6", "#d2f53c", "#fabed4"),
)
"""Palette of the 11 classes."""


def save(made: Scene, path: Path) -> None:
    """Write a scene's image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(made.image).save(path, quality=QUALITY, subsampling=0, optimize=True)


def as_image(mask: np.ndarray) -> Image.Image:
    """Return a mask as an image whose pixels are its classes."""
    image = Image.fromarray(mask)
    image.putpalette([level for colour in COLOURS for level in ImageColor.getrgb(colour)])
    return image


def main() -> int:
    """Write images and masks below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    out = parser.parse_args().out
    (out / "val" / "masks").mkdir(parents=True, exist_ok=True)
    made_of = sources("val")
    ink = 0
    for number in progress(range(SCENES), "scene"):
        made = compose(made_of, SEED, number)
        save(made, out / "val" / "images" / f"{number:04d}.jpg")
        as_image(made.mask).save(out / "val" / "masks" / f"{number:04d}.png", optimize=True)
        ink += int((made.mask > 0).sum())
    for number in range(SCENES, SCENES + SAMPLES):
        save(compose(made_of, SEED, number), out / "samples" / f"{number:04d}.jpg")
    print(f"{out}: {SCENES} scenes, ink on {ink / (SCENES * made.mask.size):.1%} of their pixels")
    return 0


if __name__ == "__main__":
    cli.run(main)
