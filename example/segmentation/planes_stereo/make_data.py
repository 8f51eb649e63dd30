"""Write the held-out scenes of planes_stereo in KITTI's layout, data/val, and a few without disparity, data/samples.

``utils/datasets/synthetic/stereo_scenes.py`` renders all of photographs and handwritten digits that are not in the
training scenes; ``LICENSES.md`` lists them. ``image_2`` and ``image_3`` have the left and the right images,
``disp_occ_0`` the disparity of the left one times 256 as PNGs of 16 bits, 0 where it is unknown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.datasets.synthetic.stereo_scenes import StereoScene, compose, material
from utils.pipeline import cli

SCENES, SAMPLES, SEED = 32, 3, 8


def save(made: StereoScene, folder: Path, number: int) -> None:
    """Write the two images of a scene."""
    for view, image in (("image_2", made.left), ("image_3", made.right)):
        (folder / view).mkdir(parents=True, exist_ok=True)
        file = folder / view / f"{number:06d}_10.png"
        Image.fromarray(image).quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)


def main() -> int:
    """Write the scenes below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    out = parser.parse_args().out
    made_of = material("val")
    (out / "val" / "disp_occ_0").mkdir(parents=True, exist_ok=True)
    for number in range(SCENES + SAMPLES):
        made = compose(made_of, SEED, number)
        save(made, out / ("val" if number < SCENES else "samples"), number)
        if number < SCENES:
            levels = np.rint(made.disparity * 256).astype(np.uint16)
            Image.fromarray(levels).save(out / "val" / "disp_occ_0" / f"{number:06d}_10.png", optimize=True)
    files = list(out.rglob("*.png"))
    print(f"{out}: {SCENES} scenes and {SAMPLES} samples, {sum(file.stat().st_size for file in files) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    cli.run(main)
