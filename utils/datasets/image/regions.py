"""Masks of COCO's regions: run-length codes and polygons, identical to those of pycocotools.

The formats are described by COCO (cocodataset.org, "Data format") and by Lin et al. 2014; the conversion is that of
COCO's mask API. Runs go down the columns, the first run is of background pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from engine import Array, DataError
from utils.datasets.image.objects import shown

FINE = 5
"""Factor by which the grid for tracing polygons is finer than the pixels."""

FAR = 1 << 20
"""Maximum coordinate of a polygon, in pixels."""

LONGEST = 1 << 22
"""Maximum length of a polygon's outline, in pixels, because a longer one could exhaust the memory. A jagged region in
an image of 16 megapixels has a tenth of it."""


def of_runs(counts: Sequence[int] | str | bytes, height: int, width: int) -> Array:
    """Return the mask of a run-length code, H x W booleans.

    ``counts`` are lengths of the runs, or COCO's text encoding of them. Raises DataError if the text is truncated or
    invalid, a run is negative, or the runs do not cover all pixels.
    """
    runs = _unpacked(counts) if isinstance(counts, (str, bytes)) else list(counts)
    if any(isinstance(run, bool) or not isinstance(run, int) or run < 0 for run in runs):
        raise DataError("a run of its RLE is not an integer of at least 0; correct counts")
    total = sum(runs)
    if total != height * width:
        size = f"{width}x{height} = {height * width}"
        raise DataError(f"its RLE covers {shown(total)} pixels, expected {size}; correct counts or size")
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, np.array(runs, np.int64)).reshape(width, height).T


def _unpacked(text: str | bytes) -> list[int]:
    """Return the runs of a text encoding.

    Each is a number in groups of five bits, the lowest first, as characters from ``0`` (48) on; the sixth bit means
    that another group follows, the fifth bit of the last group is the sign. From the fourth number on it is the
    difference to the run two before.
    """
    runs: list[int] = []
    number = shift = 0
    for letter in text if isinstance(text, str) else text.decode("latin-1"):
        group = ord(letter) - 48
        if not 0 <= group < 64 or shift > 60:
            raise DataError(f"its RLE has the invalid character {letter!r}; correct counts")
        number |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            number -= 1 << shift
        runs.append(number + runs[-2] if len(runs) > 2 else number)
        number = shift = 0
    if shift:
        raise DataError("its RLE is truncated; correct counts")
    return runs


def of_polygon(points: Sequence[float], height: int, width: int) -> Array:
    """Return the mask of a polygon, H x W booleans, clipped to the image.

    ``points`` are x and y of at least three corners, in pixels from the left and upper edge. The outline is traced on a
    grid of a fifth of a pixel; every crossing from one pixel column's centre to the next toggles the pixels below it.
    Raises DataError if there are fewer than three corners, an odd number of values, or an invalid coordinate.
    """
    numbers = _checked(points)
    sides = np.abs(np.diff(numbers.reshape(-1, 2), axis=0, append=numbers[None, :2])).max(axis=1)
    if sides.sum() > LONGEST:
        raise DataError(f"its polygon has an outline of {sides.sum():.0f} pixels, the maximum is {LONGEST}; correct it")
    fine = np.trunc(FINE * numbers.reshape(-1, 2) + 0.5).astype(np.int64)
    corners = np.concatenate([fine, fine[:1]])
    outline = np.concatenate([_line(start, end) for start, end in pairwise(corners)])
    across, down = outline.T
    turns = np.flatnonzero(np.diff(across))
    column = (np.minimum(across[turns], across[turns + 1]) + 0.5) / FINE - 0.5
    row = np.ceil(np.clip((np.minimum(down[turns], down[turns + 1]) + 0.5) / FINE - 0.5, 0, height))
    meant = (column == np.floor(column)) & (column >= 0) & (column <= width - 1)
    toggles = (column[meant] * height + row[meant]).astype(np.int64)
    counts = np.bincount(toggles, minlength=height * width + 1)[: height * width]
    inside: Array = (np.cumsum(counts) % 2 == 1).reshape(width, height).T
    return inside


def _checked(points: Sequence[float]) -> Array:
    if len(points) % 2 or len(points) < 6:
        raise DataError(f"its polygon has {len(points)} numbers; write x and y of three or more corners")
    wrong = next((p for p in points if type(p) not in (int, float) or not abs(p) <= FAR), None)
    if wrong is not None:
        raise DataError(f"its polygon has {shown(wrong)}, which is not a coordinate in pixels; correct segmentation")
    return np.array(points, np.float64)


def _line(start: Array, end: Array) -> Array:
    """Return the points of the fine grid from one corner to another, both included.

    One point per step along the longer side; the other coordinate is rounded as seen from the left corner (or from the
    upper one for a steep line), independent of the line's direction.
    """
    reach = np.abs(end - start)
    main = 0 if reach[0] >= reach[1] else 1
    steps = int(reach[main])
    flipped = bool(start[main] > end[main])
    low, high = (end, start) if flipped else (start, end)
    slope = (high[1 - main] - low[1 - main]) / steps if steps else 0.0
    taken = np.arange(steps, -1, -1) if flipped else np.arange(steps + 1)
    points = np.empty((steps + 1, 2), np.int64)
    points[:, main] = low[main] + taken
    points[:, 1 - main] = np.trunc(low[1 - main] + slope * taken + 0.5)
    return points


def text_of_runs(mask: Array) -> str:
    """Return COCO's text encoding of a mask's run lengths, H x W booleans; inverse of :func:`of_runs`."""
    flat = np.asarray(mask, bool).T.ravel()
    turns = np.flatnonzero(np.diff(flat, prepend=False))
    runs = np.diff(np.concatenate([[0], turns, [flat.size]])).tolist()
    letters = []
    for place, run in enumerate(runs):
        number = run - runs[place - 2] if place > 2 else run
        more = True
        while more:
            group, number = number & 31, number >> 5
            more = number != (-1 if group & 16 else 0)
            letters.append(chr(48 + group + 32 * more))
    return "".join(letters)
