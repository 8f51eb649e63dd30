"""JPEG photographs for the benchmarks, cut from those in scikit-image and scikit-learn: real content, without a
download.
"""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image

SCIKIT_IMAGE = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "immunohistochemistry", "retina", "rocket")
"""Colour photographs inside the scikit-image wheel; their licences are listed in its ``data/README.txt``."""

SCIKIT_LEARN = ("china", "flower")
"""Photographs inside the scikit-learn wheel (CC BY; see ``sklearn/datasets/images/README.txt``)."""

PHOTOS = (*SCIKIT_IMAGE, *SCIKIT_LEARN)

SIZE = (500, 375)
"""Width and height in pixels: the usual size of an ImageNet image."""


def make_images(folder: Path, count: int = 256) -> Path:
    """Write ``count`` images into one subfolder per photograph, seeded; existing ones are kept.

    Returns:
        The folder, ready for :func:`utils.datasets.load_dataset`.

    Raises:
        ValueError: the folder holds other images too.
    """
    missing = [index for index in range(count) if not _path(folder, index).is_file()]
    if missing:
        photos = _photographs()
        for index in missing:
            path = _path(folder, index)
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut(photos[path.parent.name], random.Random(index)).save(path, quality=90)  # noqa: S311 -- a seeded crop
    if len(list(folder.rglob("*.jpg"))) != count:
        raise ValueError(f"{folder} holds images of an earlier run with other photographs; remove it")
    return folder


def _photographs() -> dict[str, Image.Image]:
    import skimage.data
    from sklearn.datasets import load_sample_image

    photos = {name: Image.fromarray(getattr(skimage.data, name)()) for name in SCIKIT_IMAGE}
    return photos | {name: Image.fromarray(load_sample_image(f"{name}.jpg")) for name in SCIKIT_LEARN}


def _path(folder: Path, index: int) -> Path:
    return folder / PHOTOS[index % len(PHOTOS)] / f"{index:03d}.jpg"


def _cut(photo: Image.Image, rng: random.Random) -> Image.Image:
    """Cut a 4:3 rectangle of half to all of the photograph's extent, mirrored every other time."""
    width = min(photo.width, photo.height * SIZE[0] / SIZE[1]) * rng.uniform(0.5, 1.0)
    height = width * SIZE[1] / SIZE[0]
    left, top = rng.uniform(0, photo.width - width), rng.uniform(0, photo.height - height)
    cut = photo.resize(SIZE, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else cut
