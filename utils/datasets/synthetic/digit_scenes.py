"""Scenes composed of real handwritten digits on real photographs, with their boxes and masks.

The digits are scikit-learn's (``load_digits``, 8 x 8 with 17 grey levels), the photographs scikit-image's and
scikit-learn's. Both are split in two: training and validation scenes share no digit and no photograph. A scene is
determined by a seed and a number, on every machine with the same packages.

Difficulties: digits of many sizes, ink of any colour, other strokes, letters and shapes next to the digits, pieces of
other photographs, a brightness gradient over the image, blur and noise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from engine import Array, ConfigError
from utils.preprocess.image.images import open_image

SIZE = 160
"""Height and width of a scene in pixels."""

PARTS = ("train", "val")
HELD_OUT = 360
SPLIT_SEED = 0
"""The split of the digits in ``example/classification/digits``: 360 held out, stratified by digit."""

LETTER_PIXELS = (14, 56)
DIGITS = (3, 10)
"""Range of the number of digits attempted per scene; digits without a free place are skipped."""

MORE_DIGITS = (6, 16)
"""The same for augmented training scenes."""

TRIES = 4
TURN = 12.0
"""Maximum rotation of a digit in degrees."""


class Recipe(NamedTuple):
    """Difficulty of scenes.

    Attributes:
        pixels: range of the height of a digit's 8 x 8 image in the scene.
        contrast: range of the distance between ink and background in grey levels.
        blur: maximum blur, the standard deviation in pixels.
        noise: maximum noise, the standard deviation in grey levels.
        visible: minimum distance between ink and the pixels it covers in grey levels, except for a few pixels; with 0,
            parts of a digit may be invisible.
    """

    pixels: tuple[int, int]
    contrast: tuple[float, float]
    blur: float
    noise: float
    visible: float


HELD_OUT_RECIPE = Recipe((24, 60), (80.0, 160.0), 0.7, 7.0, 40.0)
"""For the held-out scenes."""

HARDER = Recipe((20, 56), (65.0, 150.0), 0.9, 8.0, 20.0)
"""For training: smaller and fainter digits than in the held-out scenes."""

CLEARER = Recipe((28, 60), (90.0, 160.0), 0.7, 6.0, 40.0)
"""For the end of a training: larger and clearer digits, which teach the exact edges of boxes."""

UNSEEN = 0.05
"""Share of a digit's ink that may violate :attr:`Recipe.visible`."""


class Photo(NamedTuple):
    """A photograph of a package, with author and licence."""

    file: str
    part: str
    author: str
    licence: str


PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}
PHOTOS = (
    Photo("skimage/data/astronaut.png", "train", "NASA", "public domain"),
    Photo("skimage/data/brick.png", "train", "CC0Textures (Bricks25)", "CC0 1.0"),
    Photo("skimage/data/chelsea.png", "train", "Stefan van der Walt", "CC0 1.0"),
    Photo("skimage/data/clock_motion.png", "train", "Stefan van der Walt", "public domain"),
    Photo("skimage/data/coffee.png", "train", "Rachel Michetti", "CC0 1.0"),
    Photo("skimage/data/grass.png", "train", "linolafett", "CC0 1.0"),
    Photo("skimage/data/hubble_deep_field.jpg", "train", "NASA", "public domain"),
    Photo("sklearn/datasets/images/flower.jpg", "train", "vultilion", "CC BY 2.0"),
    Photo("skimage/data/camera.png", "val", "Lav Varshney", "CC0 1.0"),
    Photo("skimage/data/cell.png", "val", "Paul Müller and others", "CC0 1.0"),
    Photo("skimage/data/gravel.png", "val", "CC0Textures (Gravel04)", "CC0 1.0"),
    Photo("skimage/data/retina.jpg", "val", "Mikael Häggström", "CC0 1.0"),
    Photo("skimage/data/rocket.jpg", "val", "SpaceX", "public domain"),
    Photo("sklearn/datasets/images/china.jpg", "val", "danielbuechele", "CC BY 2.0"),
)

LETTERS: tuple[tuple[tuple[tuple[float, float], ...], ...], ...] = (
    (((0.1, 1), (0.5, 0), (0.9, 1)), ((0.28, 0.6), (0.72, 0.6))),  # A
    (((0.9, 0), (0.1, 0), (0.1, 1), (0.9, 1)), ((0.1, 0.5), (0.7, 0.5))),  # E
    (((0.9, 0), (0.1, 0), (0.1, 1)), ((0.1, 0.5), (0.7, 0.5))),  # F
    (((0.1, 0), (0.1, 1)), ((0.9, 0), (0.9, 1)), ((0.1, 0.5), (0.9, 0.5))),  # H
    (((0.1, 0), (0.1, 1)), ((0.9, 0), (0.1, 0.55), (0.9, 1))),  # K
    (((0, 1), (0.1, 0), (0.5, 0.7), (0.9, 0), (1, 1)),),  # M
    (((0.1, 1), (0.1, 0), (0.9, 1), (0.9, 0)),),  # N
    (((0, 0), (0.25, 1), (0.5, 0.3), (0.75, 1), (1, 0)),),  # W
    (((0, 0), (1, 1)), ((1, 0), (0, 1))),  # X
    (((0.5, 0), (0.5, 1)), ((0, 0.5), (1, 0.5))),  # a plus
    (((0.5, 0), (1, 1), (0, 1), (0.5, 0)),),  # a triangle
    (((0, 0), (1, 0), (1, 1), (0, 1), (0, 0)),),  # a square
    (((0.5, 0), (0.5, 1)), ((0.1, 0.4), (0.5, 0), (0.9, 0.4))),  # an arrow
    (((0.2, 0), (0.2, 1)), ((0.5, 0), (0.5, 1)), ((0.8, 0), (0.8, 1))),  # three bars
)
"""Letters and shapes that are not digits: their strokes, each a line through points (x, y) of a unit square."""


class Scene(NamedTuple):
    """An image and its digits.

    Attributes:
        image: SIZE x SIZE x 3, uint8, RGB.
        boxes: N x 4, int64: left, top, right and bottom edges in pixels, tight around the digit's ink in the mask.
        labels: N digits, 0 to 9.
        mask: SIZE x SIZE, uint8: 0 for background, else 1 + the digit.
        shows: SIZE x SIZE, int8: index of the digit among the labels, -1 for background.
    """

    image: Array
    boxes: Array
    labels: Array
    mask: Array
    shows: Array


class Sources(NamedTuple):
    """Material for the scenes of one part: digits as 8 x 8 grey images, their labels, photographs."""

    digits: list[Image.Image]
    labels: Array
    photos: list[Image.Image]


def sources(part: str) -> Sources:
    """Return the material for scenes of ``train`` or ``val``.

    Raises ConfigError for another part, or if scikit-learn or scikit-image is not installed.
    """
    if part not in PARTS:
        raise ConfigError(f"part {part!r} of the digit scenes must be one of {', '.join(PARTS)}")
    photos = [open_image(photo_path(photo)) for photo in PHOTOS if photo.part == part]
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = split_digits(data.target)[PARTS.index(part)]
    grey = np.rint(data.images[chosen] * (255 / 16)).astype(np.uint8)
    return Sources([Image.fromarray(image) for image in grey], data.target[chosen], photos)


def split_digits(labels: Array) -> tuple[Array, Array]:
    """Return the sorted indices of the digits for training and of the held-out ones."""
    from sklearn.model_selection import train_test_split

    every = np.arange(len(labels))
    train, held_out = train_test_split(every, test_size=HELD_OUT, stratify=labels, random_state=SPLIT_SEED)
    return np.sort(train), np.sort(held_out)


def photo_path(photo: Photo) -> Path:
    """Return the file of a photograph. Raises ConfigError if its package, or the file, is missing."""
    package, _, file = photo.file.partition("/")
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(f"digit scenes need the package {package}; run: pip install {PACKAGES[package]}")
    path = Path(found.submodule_search_locations[0]) / file
    if not path.is_file():
        raise ConfigError(f"{path} is missing in this release of {PACKAGES[package]}; install another release")
    return path


def compose(
    made_of: Sources, seed: int, number: int, *, recipe: Recipe = HELD_OUT_RECIPE, varied: bool = False
) -> Scene:
    """Return scene ``number`` of the sequence of ``seed``, independent of earlier scenes.

    ``varied`` is augmentation for training: photographs are flipped, turned, mixed and recoloured.
    """
    rng = np.random.default_rng([seed, number])
    canvas = _Canvas(rng, made_of, recipe, varied)
    for _ in range(int(rng.integers(0, 3))):
        canvas.paste()
    for _ in range(int(rng.integers(0, 2))):
        canvas.long_stroke()
    canvas.light()
    least, most = MORE_DIGITS if varied else DIGITS
    for _ in range(int(rng.integers(least, most + 1))):
        canvas.digit()
    for _ in range(int(rng.integers(0, 4))):
        canvas.letter()
    return canvas.scene()


def training_batches(
    seed: int, size: int, fresh: int, *, recipe: Recipe = HELD_OUT_RECIPE, kept: int = 2000
) -> Iterator[list[Scene]]:
    """Yield batches of training scenes endlessly; determined by the seed.

    Args:
        size: scenes per batch, drawn from those kept.
        fresh: new scenes composed for each batch, which replace the oldest.
        kept: scenes to draw from.
    """
    made_of, order = sources("train"), np.random.default_rng(seed)
    scenes: deque[Scene] = deque(maxlen=kept)
    for number in count():
        scenes.append(compose(made_of, seed, number, recipe=recipe, varied=True))
        if number >= 20 * size and number % fresh == 0:
            yield [scenes[place] for place in order.integers(len(scenes), size=size)]


class _Canvas:
    """A scene while it is composed: grey levels as float32, and the digit that each pixel shows."""

    def __init__(self, rng: np.random.Generator, made_of: Sources, recipe: Recipe, varied: bool) -> None:
        self.rng, self.made_of, self.recipe, self.varied = rng, made_of, recipe, varied
        self.image = self._photo(SIZE, SIZE)
        if varied and rng.random() < 0.3:
            share = np.float32(rng.uniform(0.3, 0.7))
            self.image = share * self.image + (1 - share) * self._photo(SIZE, SIZE)
        self.shows = np.full((SIZE, SIZE), -1, np.int16)  # index of the digit in this scene
        self.taken = np.zeros((SIZE, SIZE), bool)  # ink of digits and letters, which never overlap
        self.labels: list[int] = []

    def _photo(self, height: int, width: int) -> Array:
        """Return a piece of a photograph, height x width x 3, float32 grey levels."""
        rng = self.rng
        photo = self.made_of.photos[rng.integers(len(self.made_of.photos))]
        side = int(rng.integers(SIZE // 2, min(photo.size) + 1))
        left, top = (int(rng.integers(0, edge - side + 1)) for edge in photo.size)
        box = (left, top, left + side, top + side)
        piece = np.asarray(photo.resize((width, height), Image.Resampling.BILINEAR, box, reducing_gap=2.0), np.float32)
        return self._vary(piece) if self.varied else piece

    def _vary(self, piece: Array) -> Array:
        rng = self.rng
        if rng.random() < 0.5:
            piece = piece[:, ::-1]
        if piece.shape[0] == piece.shape[1]:
            piece = np.rot90(piece, int(rng.integers(4)))
        piece = piece[..., rng.permutation(3)]
        if rng.random() < 0.3:
            piece = 255 - piece
        if rng.random() < 0.3:
            piece = np.repeat(piece.mean(axis=-1, keepdims=True), 3, axis=-1)
        shift = rng.uniform(-50, 50, 3 if rng.random() < 0.5 else 1)
        varied = (piece - 128) * rng.uniform(0.5, 1.3) + 128 + shift
        return np.clip(varied, 0, 255).astype(np.float32)

    def paste(self) -> None:
        """Paste a rotated rectangle of another photograph."""
        rng = self.rng
        height, width = (int(side) for side in rng.integers(12, SIZE // 2, 2))
        angle = float(rng.uniform(0, 90))
        shape = Image.new("L", (width, height), 255).rotate(angle, Image.Resampling.BILINEAR, expand=True)
        alpha = np.asarray(shape, np.float32) / 255 * np.float32(rng.uniform(0.5, 1))
        alpha = alpha[:SIZE, :SIZE]
        self._mix(alpha, self._photo(*alpha.shape), *self._place(alpha.shape))

    def long_stroke(self) -> None:
        """Draw a curve from one edge of the scene towards another."""
        rng = self.rng
        bend = rng.uniform(0, SIZE, (3, 2))
        bend[0, int(rng.integers(2))] = 0
        bend[2, int(rng.integers(2))] = SIZE
        t = np.linspace(0, 1, 200)[:, None]
        points = (1 - t) ** 2 * bend[0] + 2 * t * (1 - t) * bend[1] + t**2 * bend[2]
        alpha = _inked(points, (SIZE, SIZE), float(rng.uniform(0.8, 3.0)))
        self._mix(alpha, self._ink(self.image), 0, 0)

    def light(self) -> None:
        """Apply a brightness gradient in a random direction."""
        rng = self.rng
        angle, depth = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.35)
        ramp = np.linspace(-1, 1, SIZE)
        slope = np.cos(angle) * ramp[None, :] + np.sin(angle) * ramp[:, None]
        self.image = (self.image * (1 + depth * slope[..., None])).clip(0, 255).astype(np.float32)

    def digit(self) -> None:
        """Draw a digit at a free place."""
        rng = self.rng
        chosen = int(rng.integers(len(self.made_of.labels)))
        alpha = written(rng, self.made_of.digits[chosen], self.recipe.pixels)
        at = self._write(alpha)
        if at is not None:
            top, left = at
            self.shows[top : top + alpha.shape[0], left : left + alpha.shape[1]][alpha >= 0.5] = len(self.labels)
            self.labels.append(int(self.made_of.labels[chosen]))

    def letter(self) -> None:
        """Draw a letter or shape with the digits' resolution: 32 x 32 dots, counted in 8 x 8 squares."""
        rng = self.rng
        strokes = LETTERS[rng.integers(len(LETTERS))]
        scale, shift = rng.uniform(20, 25, 2), rng.uniform(3, 6, 2)
        lines = []
        for stroke in strokes:
            corners = np.array(stroke) + rng.uniform(-0.06, 0.06, (len(stroke), 2))
            steps = np.linspace(0, len(stroke) - 1, 16 * (len(stroke) - 1))
            lines.append(np.stack([np.interp(steps, np.arange(len(stroke)), axis) for axis in corners.T], axis=1))
        dots = _inked(np.concatenate(lines) * scale + shift, (32, 32), float(rng.uniform(1.4, 2.4))) >= 0.5
        counted = dots.reshape(8, 4, 8, 4).sum(axis=(1, 3))
        small = Image.fromarray(np.rint(counted * (255 / 16)).astype(np.uint8))
        self._write(written(rng, small, LETTER_PIXELS))

    def _write(self, alpha: Array) -> tuple[int, int] | None:
        """Draw ink at a free place with enough contrast; return top and left, or ``None`` without such a place."""
        if not alpha.size or max(alpha.shape) > SIZE:
            return None
        for _ in range(TRIES):
            top, left = self._place(alpha.shape)
            there = np.s_[top : top + alpha.shape[0], left : left + alpha.shape[1]]
            if (self.taken[there] & (alpha > 0)).any():
                continue
            ink = self._ink(self.image[there])
            differs = np.abs(self.image[there] - ink).mean(axis=-1)[alpha >= 0.5]
            if (differs < self.recipe.visible).mean() <= UNSEEN:
                self._mix(alpha, ink, top, left)
                self.taken[there] |= alpha > 0
                return top, left
        return None

    def _place(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return int(self.rng.integers(0, SIZE - shape[0] + 1)), int(self.rng.integers(0, SIZE - shape[1] + 1))

    def _ink(self, under: Array) -> Array:
        """Return a colour that is darker or lighter than the background."""
        rng = self.rng
        level = float(under.mean())
        contrast = float(rng.uniform(*self.recipe.contrast))
        dark = level - contrast >= 0 and (level + contrast > 255 or rng.random() < 0.5)
        grey = max(level - contrast, 0) if dark else min(level + contrast, 255)
        colour: Array = np.clip(grey + rng.uniform(-25, 25, 3), 0, 255).astype(np.float32)
        return colour

    def _mix(self, alpha: Array, paint: Array, top: int, left: int) -> None:
        there = self.image[top : top + alpha.shape[0], left : left + alpha.shape[1]]
        there += (paint - there) * alpha[..., None]

    def scene(self) -> Scene:
        """Return the scene with camera effects: slight blur, noise, integer grey levels."""
        rng = self.rng
        sharp = Image.fromarray(self.image.clip(0, 255).astype(np.uint8))
        seen = np.asarray(sharp.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, self.recipe.blur)))), np.float32)
        noise = rng.standard_normal(seen.shape, np.float32) * np.float32(rng.uniform(1, self.recipe.noise))
        image = np.rint(seen + noise).clip(0, 255).astype(np.uint8)
        labels = np.array(self.labels, np.int64)
        boxes = np.array([_tight(self.shows == number) for number in range(len(labels))], np.int64).reshape(-1, 4)
        mask = np.append(labels + 1, 0)[self.shows].astype(np.uint8)
        return Scene(image, boxes, labels, mask, self.shows.astype(np.int8))


def written(rng: np.random.Generator, small: Image.Image, pixels: tuple[int, int]) -> Array:
    """Return the ink coverage of each pixel (0 to 1) of an enlarged 8 x 8 image, without empty edges."""
    height = int(rng.integers(pixels[0], pixels[1] + 1))
    width = max(round(height * rng.uniform(0.7, 1.15)), 8)
    wide = Image.new("L", (12, 12))
    wide.paste(small, (2, 2))
    turned = wide.resize((48, 48), Image.Resampling.BICUBIC).rotate(
        float(rng.uniform(-TURN, TURN)), Image.Resampling.BILINEAR
    )
    wanted = (round(width * 1.5), round(height * 1.5))
    grey = np.asarray(turned.resize(wanted, Image.Resampling.BILINEAR, reducing_gap=3.0), np.float32) / 255
    sharp = max(height / 16, 1.2)  # the edge of the ink is about two pixels wide at every size
    alpha = np.clip((grey - rng.uniform(0.4, 0.5)) * sharp + 0.5, 0, 1).astype(np.float32)
    ink = alpha >= 0.5
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return alpha[:0, :0]
    return alpha[max(rows[0] - 1, 0) : rows[-1] + 2, max(columns[0] - 1, 0) : columns[-1] + 2]


def _inked(points: Array, shape: tuple[int, int], radius: float) -> Array:
    """Return the ink coverage (0 to 1) of height x width pixels by a round pen along points (x, y)."""
    alpha = np.zeros(shape, np.float32)
    reach = int(np.ceil(radius + 1))
    offsets = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    pixels = np.floor(points[:, None, ::-1]).astype(int) + offsets  # points x offsets x (row, column)
    far = np.hypot(*np.moveaxis(pixels + 0.5 - points[:, None, ::-1], -1, 0))
    inside = ((pixels >= 0) & (pixels < shape)).all(axis=-1)
    ink = np.clip(radius + 0.5 - far, 0, 1)
    np.maximum.at(alpha, tuple(pixels[inside].T), ink[inside].astype(np.float32))
    return alpha


def _tight(shown: Array) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom edges of the true pixels."""
    rows, columns = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
