"""Write a small folder of images in ImageNet's shape: train/DIGIT/*.png and val/DIGIT/*.png.

The images are scikit-learn's handwritten digits, split as those of example/classification/digits. An image's file
name is its index in the data set.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = HERE.parents[2]
sys.path[:0] = [str(ZOO), str(ZOO / "example" / "classification" / "digits")]
from engine import ConfigError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.places import check_folder

with needed(__file__):
    import sklearn  # noqa: F401 -- asked for here, by this folder's list
from make_data import digits, split  # of the zoo's folder, which is before this one on the path


def main() -> int:
    """Write the images below --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument(
        "--out", type=Path, default=HERE / "data", metavar="DIR", help="default: data, in the folder of this file"
    )
    parser.add_argument("--train", type=int, default=1437, help="images to train on (default: all 1437)")
    parser.add_argument("--val", type=int, default=360, help="images held out (default: all 360)")
    args = parser.parse_args()
    images, labels = digits()
    sets = dict(zip(("train", "val"), split(labels), strict=True))
    check_folder("--out", args.out)
    for name, indices in sets.items():
        wanted = getattr(args, name)
        if not 0 < wanted <= len(indices) or len(set(labels[indices[:wanted]])) < 10:
            raise ConfigError(f"--{name} {wanted} must be at most {len(indices)}, and enough to hold every digit")
        for index in indices[:wanted]:
            folder = args.out / name / str(labels[index])
            folder.mkdir(parents=True, exist_ok=True)
            images[index].save(folder / f"{index:04d}.png", optimize=True)
    print(f"{args.out}: {args.train} images to train on, {args.val} held out")
    return 0


if __name__ == "__main__":
    cli.run(main)
