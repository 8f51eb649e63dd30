"""Write the held-out images of espcn_x2: data/val/HR/<photograph>_<number>.png, and data/samples/*.jpg.

They are cut out of four photographs that come with scikit-image and are not among those of the training;
``LICENSES.md`` lists them. Of each photograph's squares on a grid those with the highest contrast are taken: flat ones
say little about super-resolution. The inputs are not stored: the task halves the images by Pillow's bicubic filter.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.datasets.synthetic.digit_scenes import PHOTOS, photo_path
from utils.pipeline import cli
from utils.preprocess.image.images import open_image

SIDE = 128
"""Height and width of a held-out image in pixels."""

COUNTS = {"camera": 6, "gravel": 4, "retina": 4, "rocket": 6}
"""Number of images by photograph."""

SAMPLES = {"camera": (180, 60, 420, 300), "retina": (500, 480, 756, 672), "rocket": (150, 60, 470, 300)}
"""Left, top, right and bottom of the samples, whose sizes differ."""


def squares(photo: Image.Image, count: int) -> list[Image.Image]:
    """Return the squares of a grid with the highest contrast (standard deviation of the grey levels), in its order."""
    grid = [
        photo.crop((left, top, left + SIDE, top + SIDE))
        for top in range(0, photo.height - SIDE + 1, SIDE)
        for left in range(0, photo.width - SIDE + 1, SIDE)
    ]
    contrast = np.array([np.asarray(one.convert("L")).std() for one in grid])
    return [grid[place] for place in np.sort(np.argsort(-contrast, kind="stable")[:count])]


def main() -> int:
    """Write the images below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    out = parser.parse_args().out
    high, samples = out / "val" / "HR", out / "samples"
    high.mkdir(parents=True, exist_ok=True)
    samples.mkdir(parents=True, exist_ok=True)
    for photo in PHOTOS:
        name = Path(photo.file).stem
        if name not in COUNTS:
            continue
        image = open_image(photo_path(photo))
        grey = photo.file.endswith(("camera.png", "gravel.png"))
        for number, square in enumerate(squares(image, COUNTS[name])):
            (square.convert("L") if grey else square).save(high / f"{name}_{number}.png", optimize=True)
        if name in SAMPLES:
            image.crop(SAMPLES[name]).save(samples / f"{name}.jpg", quality=92, subsampling=0, optimize=True)
    files = sorted(high.glob("*.png"))
    print(f"{out}: {len(files)} held-out images, {sum(file.stat().st_size for file in files) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    cli.run(main)
