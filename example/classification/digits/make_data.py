"""Write the held-out images of the digits example: data/val/<digit>/<index>.png.

The data set is scikit-learn's ``load_digits``: 1797 of the UCI "Optical Recognition of Handwritten Digits" images,
8 x 8 with 17 grey levels. 360 of them, the same share of every digit, are held out by one fixed seed and are never
trained on; the other 1437 are the training set. An image's file name is its index in ``load_digits``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tecoinfer_modelzoo.extra import needed

with needed(__file__):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

HELD_OUT = 360
SEED = 0


def digits() -> tuple[list[Image.Image], np.ndarray]:
    """Return the 1797 grey images (grey levels 0 to 16 stretched to 0 to 255) and their digits."""
    data = load_digits()
    grey = np.rint(data.images * (255 / 16)).astype(np.uint8)
    return [Image.fromarray(image) for image in grey], data.target


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted indices of the training set and of the held-out set."""
    train, held_out = train_test_split(np.arange(len(labels)), test_size=HELD_OUT, stratify=labels, random_state=SEED)
    return np.sort(train), np.sort(held_out)


def main() -> None:
    """Write the held-out images below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data" / "val")
    out = parser.parse_args().out
    images, labels = digits()
    for index in split(labels)[1]:
        folder = out / str(labels[index])
        folder.mkdir(parents=True, exist_ok=True)
        images[index].save(folder / f"{index:04d}.png", optimize=True)
    print(f"{out}: {HELD_OUT} images")


if __name__ == "__main__":
    main()
