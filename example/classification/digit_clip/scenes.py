"""Images of one coloured digit on a piece of a photograph, and their captions: "a red three on the left".

Digits and photographs are those of :mod:`utils.datasets.synthetic.digit_scenes`, split the same way: the held-out
images share neither a digit nor a photograph with the training. Every third combination of colour, digit and place is
held out too: the training never has a red three on the left, only red threes elsewhere, and other digits there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array
from utils.datasets.synthetic.digit_scenes import sources

SIZE = 48
"""Height and width of an image in pixels."""

COLOURS = {
    "red": (215, 40, 40),
    "green": (40, 170, 60),
    "blue": (45, 75, 220),
    "yellow": (235, 215, 50),
    "white": (245, 245, 245),
    "black": (15, 15, 15),
}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = {
    "on the left": (0.27, 0.5),
    "on the right": (0.73, 0.5),
    "at the top": (0.5, 0.27),
    "at the bottom": (0.5, 0.73),
}
"""Words, and the middle of the digit: shares of the width and of the height."""

EVERY = 3
"""One in this many of the combinations is held out."""

CONTRAST = 110.0
"""Least distance of the digit's colour from the mean of what it covers, in levels; other pieces are drawn again."""


class Combination(NamedTuple):
    """What an image shows, as words."""

    colour: str
    digit: str
    place: str

    @property
    def caption(self) -> str:
        """The text of an image."""
        return f"a {self.colour} {self.digit} {self.place}"


def combinations() -> tuple[list[Combination], list[Combination]]:
    """Return those for training, and the held-out ones."""
    every = [Combination(colour, digit, place) for colour in COLOURS for digit in DIGITS for place in PLACES]
    order = np.random.default_rng(0).permutation(len(every)).tolist()
    tested = sorted(order[::EVERY])
    return [one for place, one in enumerate(every) if place not in set(tested)], [every[place] for place in tested]


class Material(NamedTuple):
    """Digits, 8 x 8 grey images; what each is; and pieces of photographs, N x SIZE x SIZE x 3 float64."""

    digits: list[Image.Image]
    labels: Array
    pieces: Array


def material(part: str, pieces: int, chance: np.random.Generator) -> Material:
    """Return the material for images of ``train`` or ``val``, with this number of pieces."""
    found = sources(part)
    photos = [photo.convert("RGB") for photo in found.photos]
    return Material(found.digits, found.labels, np.stack([_piece(photos, chance) for _ in range(pieces)]))


def draw(one: Combination, made_of: Material, chance: np.random.Generator) -> Array:
    """Return an image of a combination, SIZE x SIZE x 3, uint8."""
    colour = np.array(COLOURS[one.colour], np.float64) + chance.normal(0, 8, 3)
    numbers = np.flatnonzero(made_of.labels == DIGITS.index(one.digit))
    ink, left, top = _ink(made_of.digits[chance.choice(numbers)], PLACES[one.place], chance)
    for _ in range(20):
        ground = made_of.pieces[chance.integers(len(made_of.pieces))] * chance.uniform(0.6, 1.1)
        ground = ground[:: chance.choice([1, -1]), :: chance.choice([1, -1])]
        under = ground[top : top + len(ink), left : left + ink.shape[1]]
        if np.linalg.norm((under * ink[..., None]).sum(axis=(0, 1)) / ink.sum() - colour) >= CONTRAST:
            break
    under += (colour - under) * ink[..., None]
    ground += chance.normal(0, 4, ground.shape)
    return np.clip(np.rint(ground), 0, 255).astype(np.uint8)


def held_out() -> list[Array]:
    """Return an image of each held-out combination, in their order, always the same ones."""
    chance = np.random.default_rng(1)
    made_of = material("val", 300, chance)
    return [draw(one, made_of, chance) for one in combinations()[1]]


def _ink(digit: Image.Image, middle: tuple[float, float], chance: np.random.Generator) -> tuple[Array, int, int]:
    """Return the shares of ink of a digit's pixels, and the position of its left and top edge."""
    side = int(chance.integers(18, 25))
    turned = digit.resize((side, side), Image.Resampling.BICUBIC).rotate(
        float(chance.uniform(-10, 10)), Image.Resampling.BILINEAR
    )
    ink = np.clip(np.asarray(turned, np.float64) / 200, 0, 1)
    left, top = (
        int(np.clip(round(share * SIZE - side / 2 + chance.normal(0, 1.2)), 0, SIZE - side)) for share in middle
    )
    return ink, left, top


def _piece(photos: list[Image.Image], chance: np.random.Generator) -> Array:
    """Return a piece of a photograph at a random scale, SIZE x SIZE x 3 float64."""
    photo = photos[chance.integers(len(photos))]
    side = min(int(chance.integers(SIZE, min(photo.size) // 2 + SIZE)), *photo.size)
    left, top = (int(chance.integers(0, length - side + 1)) for length in photo.size)
    piece = photo.resize((SIZE, SIZE), Image.Resampling.BOX, (left, top, left + side, top + side))
    return np.asarray(piece, np.float64)
