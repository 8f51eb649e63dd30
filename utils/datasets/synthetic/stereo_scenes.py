"""Pairs of images of planes, with the exact disparity: photographs as textures, handwritten digits in front.

A scene is a slanted background plane and several rectangles and digits nearer to the camera. Each is textured with a
piece of a photograph. A rectified pair of cameras sees a point at column x of the left image and at x - d of the right
one, on the same row; on a plane the disparity d is a + b x + c y, so that both images are sampled without an
approximation but the bilinear interpolation of the texture. Training and validation share no photograph and no digit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array
from utils.datasets.synthetic.digit_scenes import PHOTOS, photo_path, split_digits
from utils.preprocess.image.images import open_image

HEIGHT, WIDTH = 64, 96
"""Of the images in pixels."""

NEAREST = 16.0
"""Largest disparity in pixels."""

PARTS = ("train", "val")


class StereoScene(NamedTuple):
    """A rendered scene.

    Attributes:
        left, right: H x W x 3 uint8, RGB.
        disparity: of the left image in pixels, H x W float32; 0 where the point lies outside of the right image.
    """

    left: Array
    right: Array
    disparity: Array


class Material(NamedTuple):
    """Textures and digits of a part: photographs, and 8 x 8 float32 digits of 0..1."""

    photos: list[Image.Image]
    digits: Array


def material(part: str) -> Material:
    """Return the material of ``train`` or ``val``. Raises ConfigError if a package is missing."""
    free = [one for one in PHOTOS if one.part == part and one.licence != "CC BY 2.0"]
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = split_digits(data.target)[PARTS.index(part)]
    return Material([open_image(photo_path(one)) for one in free], (data.images[chosen] / 16).astype(np.float32))


def compose(made_of: Material, seed: int, number: int) -> StereoScene:
    """Return a scene, determined by the seed and its number."""
    rng = np.random.default_rng([seed, number])
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    left, right = np.zeros((HEIGHT, WIDTH, 3)), np.zeros((HEIGHT, WIDTH, 3))
    disparity = np.zeros((HEIGHT, WIDTH))
    for place, near in enumerate(np.sort(rng.uniform(3, NEAREST - 2, int(rng.integers(4, 8)))).tolist()):
        across, down = rng.uniform(-0.015, 0.015, 2).tolist()
        start = near - across * WIDTH / 2 - down * HEIGHT / 2  # disparity at column 0 and row 0
        layer = Layer(_texture(made_of, rng), None if not place else _outline(made_of, rng))
        inside, colours = layer.seen(columns, rows)
        left[inside] = colours[inside]
        disparity[inside] = (start + across * columns + down * rows)[inside]
        inside, colours = layer.seen((columns + start + down * rows) / (1 - across), rows)
        right[inside] = colours[inside]
    disparity[columns - disparity < 0] = 0
    noisy = [image * rng.uniform(0.9, 1.1) + rng.normal(0, 2, image.shape) for image in (left, right)]
    one, other = (np.rint(image).clip(0, 255).astype(np.uint8) for image in noisy)
    return StereoScene(one, other, disparity.astype(np.float32))


class Outline(NamedTuple):
    """Where a layer is opaque: a map stretched over a box of the left image."""

    opaque: Array  # h x w float32, at least 0.5 inside
    box: tuple[float, float, float, float]  # left, top, width, height in pixels


class Layer(NamedTuple):
    """A textured plane; ``outline`` ``None``: opaque everywhere."""

    texture: Array  # h x w x 3 float32, larger than the image by NEAREST columns on each side
    outline: Outline | None

    def seen(self, columns: Array, rows: Array) -> tuple[Array, Array]:
        """Return where the layer is opaque, and its colours, at columns and rows of the left image."""
        colours = _sampled(self.texture, columns + 2 * NEAREST, rows)
        if self.outline is None:
            return np.ones(columns.shape, bool), colours
        left, top, width, height = self.outline.box
        tall, wide = self.outline.opaque.shape
        x, y = (columns - left) * (wide - 1) / width, (rows - top) * (tall - 1) / height
        within = (x >= 0) & (x <= wide - 1) & (y >= 0) & (y <= tall - 1)
        return within & (_sampled(self.outline.opaque[..., None], x, y)[..., 0] >= 0.5), colours


def _sampled(values: Array, x: Array, y: Array) -> Array:
    """Return the bilinear interpolation of h x w x C values at columns x and rows y, clipped to the edges."""
    x, y = x.clip(0, values.shape[1] - 1), y.clip(0, values.shape[0] - 1)
    left, top = x.astype(int).clip(0, values.shape[1] - 2), y.astype(int).clip(0, values.shape[0] - 2)
    across, down = (x - left)[..., None], (y - top)[..., None]
    upper = values[top, left] * (1 - across) + values[top, left + 1] * across
    lower = values[top + 1, left] * (1 - across) + values[top + 1, left + 1] * across
    found: Array = upper * (1 - down) + lower * down
    return found


def _texture(made_of: Material, rng: np.random.Generator) -> Array:
    """Return a piece of a photograph, recoloured."""
    photo = made_of.photos[int(rng.integers(len(made_of.photos)))]
    width, height = WIDTH + int(4 * NEAREST), HEIGHT
    scale = float(rng.uniform(1.0, min(2.5, photo.width / width, photo.height / height)))
    size = int(width * scale), int(height * scale)
    left, top = (int(rng.integers(0, whole - part + 1)) for whole, part in zip(photo.size, size, strict=True))
    box = (left, top, left + size[0], top + size[1])
    piece = np.asarray(photo.resize((width, height), Image.Resampling.BILINEAR, box), np.float32)
    return (piece[:, :: int(rng.choice([-1, 1])), rng.permutation(3)] * rng.uniform(0.6, 1.2, 3)).astype(np.float32)


def _outline(made_of: Material, rng: np.random.Generator) -> Outline:
    """Return a digit or a rectangle."""
    digit = rng.random() < 0.5
    opaque = made_of.digits[int(rng.integers(len(made_of.digits)))] if digit else np.ones((2, 2), np.float32)
    width, height = rng.uniform(16, 44), rng.uniform(16, 44)
    left, top = rng.uniform(0, WIDTH - width / 2), rng.uniform(-height / 4, HEIGHT - height / 2)
    return Outline(opaque, (float(left), float(top), float(width), float(height)))
