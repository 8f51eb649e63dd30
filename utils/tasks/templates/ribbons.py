"""Sample pages of page reading: rows of bright coloured bars on a dark ground, each bar a letter, each row a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array
from utils.tasks.templates.bars import COLOURS

SIZE = 320
"""Height and width of the tiny detector's input in pixels, and of its pages."""

HEIGHT, STEP = 16, 4
"""Of the tiny recogniser's input in pixels, and the pixels of one of its steps."""

TALL, BAR, GAP = 32, (28, 40), 28
"""Pixels of a line's height, of a bar's width, and between two bars."""

PAGES = 6


def fill(folder: Path) -> Mapping[str, str]:
    """Draw pages into ``data`` with their ``Label.txt``, the last one empty; return words for the templates."""
    from PIL import Image

    data = folder / "data"
    data.mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(PAGES):
        pixels, lines = _page(chance, 0 if index == PAGES - 1 else 3)
        name = f"page_{index}.png"
        Image.fromarray(pixels).save(data / name, optimize=True)
        rows.append(f"{name}\t{json.dumps(lines)}\n")
    (data / "Label.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    words = {"size": SIZE, "height": HEIGHT, "step": STEP, "pages": PAGES, "tall": TALL, "gap": GAP}
    return {name: str(value) for name, value in words.items()} | {"letters": json.dumps(list(COLOURS))}


def _page(chance: np.random.Generator, count: int) -> tuple[Array, list[dict[str, object]]]:
    """Return a page, H x W x 3 uint8, and its lines as a label file has them."""
    pixels = np.full((SIZE, SIZE, 3), 20, np.uint8)
    lines: list[dict[str, object]] = []
    for row in range(count):
        top, left = 40 + 90 * row, int(chance.integers(20, 50))
        letters = [str(one) for one in chance.choice(list(COLOURS), int(chance.integers(2, 5)))]
        right = left
        for letter in letters:
            width = int(chance.choice(BAR))
            pixels[top : top + TALL, right : right + width] = COLOURS[letter]
            right += width + GAP
        right -= GAP
        points = [[left, top], [right, top], [right, top + TALL], [left, top + TALL]]
        lines.append({"transcription": "".join(letters), "points": points})
    return pixels, lines


"""Three networks with fixed weights: one finds rows of bars, one predicts upright for all, one classifies their
colours."""
