"""Text lines from a detector's probability map: Differentiable Binarization (Liao et al., 2020).

The map has the probability that a pixel is in the inner part of a line; the detector is trained with shrunk lines.
Pixels above a threshold form components; each becomes the rectangle around it, or, if it is bent, the band around its
midline, which is then expanded by the distance of the training's shrinking: area times ratio, divided by perimeter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.postprocess.text.components import Runs, components
from utils.postprocess.text.midlines import band, bow, length_of, midline
from utils.postprocess.text.rectangles import Rectangle, smallest_rectangle

RIGHT = np.array([1.0, 0.0])

UPRIGHT = 1.5
"""Minimum ratio of height to width of a vertical line, as in PP-OCR."""

FILLED = 0.75
"""Minimum share of its rectangle that a straight line's component fills."""

BENT = 0.4
"""Minimum deviation of a bent line's midline from a straight one, in thicknesses of the component."""


class Found(NamedTuple):
    """A text line on a map or a page.

    Attributes:
        outline: 2N x 2 (x, y), N at least 2: the upper side along the text, then the lower one backwards. For a
            straight line its corners, clockwise from its start.
        score: mean probability inside, 0 to 1.
    """

    outline: Array
    score: float


class Settings(NamedTuple):
    """Parameters of line detection; the defaults are those of PaddleOCR's ``DBPostProcess`` for PP-OCRv4.

    Attributes:
        threshold: minimum probability of a line's pixel.
        box_threshold: minimum mean probability of a line.
        unclip: factor of the expansion: area * unclip / perimeter.
        smallest: minimum of a line's shorter side in pixels of the map, before and (plus 2) after its expansion.
        candidates: maximum number of components, by area.
        bent: whether lines may be bent.
    """

    threshold: float = 0.3
    box_threshold: float = 0.6
    unclip: float = 1.5
    smallest: float = 3.0
    candidates: int = 1000
    bent: bool = True


def find_lines(probabilities: Array, settings: Settings = Settings()) -> list[Found]:  # noqa: B008 (not mutable)
    """Return the lines of a map (H x W floats, 0 to 1; NaN is not text), in the order of their first pixels.

    Outlines are in pixels of the map (edges, not centres).
    """
    runs = components(probabilities > settings.threshold)
    return [found for number in _candidates(runs, settings) if (found := _line(probabilities, runs, number, settings))]


def _candidates(runs: Runs, settings: Settings) -> Iterator[int]:
    """Yield the components that are large enough, in order; the largest if there are too many."""
    if not len(runs):
        return
    firsts = runs.bounds[:-1]
    areas = np.add.reduceat(runs.ends - runs.starts, firsts)
    heights = np.maximum.reduceat(runs.rows, firsts) - np.minimum.reduceat(runs.rows, firsts) + 1
    widths = np.maximum.reduceat(runs.ends, firsts) - np.minimum.reduceat(runs.starts, firsts)
    kept = np.flatnonzero((areas >= settings.smallest**2) & (np.minimum(heights, widths) >= settings.smallest))
    if len(kept) > settings.candidates:
        kept = np.sort(kept[np.argsort(-areas[kept], kind="stable")[: settings.candidates]])
    yield from kept.tolist()


def _line(probabilities: Array, runs: Runs, number: int, settings: Settings) -> Found | None:
    rows, starts, ends = runs.of(number)
    box = smallest_rectangle(_corners(rows, starts, ends))
    if min(box.sides) < settings.smallest:
        return None
    area = int((ends - starts).sum())
    if settings.bent and area < FILLED * math.prod(box.sides):
        bent = _bent(probabilities, (rows, starts, ends), area, settings)
        if bent is not None:
            return bent
    score = _mean_within(probabilities, box)
    if score < settings.box_threshold:
        return None
    box = box.grown(math.prod(box.sides) * settings.unclip / (2 * sum(box.sides)))
    if min(box.sides) < settings.smallest + 2:
        return None
    level = box.along(RIGHT)
    upright = level.sides[1] >= UPRIGHT * level.sides[0]
    return Found((box if upright else level).corners(), score)


def _corners(rows: Array, starts: Array, ends: Array) -> Array:
    """Return the corners of a component's rows, N x 2: four for the outermost runs of each row."""
    change = np.flatnonzero(np.diff(rows)) + 1
    first, last = np.append(0, change), np.append(change, len(rows)) - 1
    left, right, above = starts[first], ends[last], rows[first]
    x = np.concatenate([left, right, left, right])
    return np.stack([x, np.concatenate([above, above, above + 1, above + 1])], axis=1)


def _mean_within(probabilities: Array, box: Rectangle) -> float:
    """Return the mean of the pixels with centres in a rectangle."""
    corners = box.corners()
    low, high = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int)
    left, top = max(0, int(low[0])), max(0, int(low[1]))
    part = probabilities[top : int(high[1]), left : int(high[0])]
    y = np.arange(part.shape[0])[:, None] + (top + 0.5 - box.centre[1])
    x = np.arange(part.shape[1]) + (left + 0.5 - box.centre[0])
    along, across = x * box.axis[0] + y * box.axis[1], y * box.axis[0] - x * box.axis[1]
    inside = (np.abs(along) <= box.sides[0] / 2) & (np.abs(across) <= box.sides[1] / 2)
    return float(part[inside].mean()) if inside.any() else 0.0


def _bent(probabilities: Array, runs: tuple[Array, Array, Array], area: int, settings: Settings) -> Found | None:
    """Return a bent line; ``None`` if the component is not one."""
    points = midline(*runs)
    length = length_of(points)
    if len(points) < 3 or length < 2 * settings.smallest:
        return None
    thickness = area / length
    if length < 2 * thickness or bow(points) < BENT * thickness:
        return None
    total = sum(float(probabilities[r, s:e].sum()) for r, s, e in zip(*(one.tolist() for one in runs), strict=True))
    score = total / area
    if score < settings.box_threshold:
        return None
    distance = area * settings.unclip / (2 * (length + thickness))
    return Found(band(points, thickness / 2 + distance, distance), score)
