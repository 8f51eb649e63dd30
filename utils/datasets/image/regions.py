"""Regions of an image as COCO writes them, as masks: run-length codes and polygons, exactly as pycocotools has them.

The formats are described by COCO (cocodataset.org, "Data format") and by Lin et al. 2014, and their reading is that of
COCO's mask API. Runs go down the columns, the first run is of pixels outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from engine import Array, DataError
from utils.datasets.image.objects import shown

FINE = 5
"""Polygons are traced on a grid this much finer than the pixels."""

FAR = 1 << 20
"""Largest coordinate of a polygon that is believed, in pixels."""

LONGEST = 1 << 22
"""Longest outline of a polygon that is traced, in pixels: that of a jagged region in an image of 16 megapixels is a
tenth of it, and a line of JSON may hold one that fills all memory."""


def of_runs(counts: Sequence[int] | str | bytes, height: int, width: int) -> Array:
    """Return the mask of a run-length code, H x W booleans.

    Args:
        counts: lengths of the runs, or the text that COCO packs them into.
        height, width: of the image in pixels.

    Raises:
        DataError: the text is cut short or no such code, a run is negative, or they do not add up to all pixels.
    """
    runs = _unpacked(counts) if isinstance(counts, (str, bytes)) else list(counts)
    if any(isinstance(run, bool) or not isinstance(run, int) or run < 0 for run in runs):
        raise DataError("a run of its RLE is not a whole number of at least 0; correct counts")
    total = sum(runs)
    if total != height * width:
        raise DataError(
            f"its RLE covers {shown(total)} pixels, and {width}x{height} are {height * width}; correct counts or size"
        )
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, np.array(runs, np.int64)).reshape(width, height).T


def _unpacked(text: str | bytes) -> list[int]:
    """Return the runs that a text holds.

    Each is a number in groups of five bits, the lowest first, as characters from ``0`` (48) on; the sixth bit says that
    another group follows, the fifth of the last group is the sign. From the fourth number on it is the difference to
    the run two before.
    """
    runs: list[int] = []
    number = shift = 0
    for letter in text if isinstance(text, str) else text.decode("latin-1"):
        group = ord(letter) - 48
        if not 0 <= group < 64 or shift > 60:
            raise DataError(f"its RLE holds {letter!r}, which is no part of such a code; correct counts")
        number |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            number -= 1 << shift
        runs.append(number + runs[-2] if len(runs) > 2 else number)
        number = shift = 0
    if shift:
        raise DataError("its RLE is cut short; correct counts")
    return runs


def of_polygon(points: Sequence[float], height: int, width: int) -> Array:
    """Return the mask of a polygon, H x W booleans; parts outside the image are cut off.

    The outline is traced on a grid of a fifth of a pixel; every crossing from one pixel column's centre to the next
    toggles what is inside, from there down.

    Args:
        points: x and y of each corner in turn, in pixels from the left and upper edge; at least three corners.
        height, width: of the image in pixels.

    Raises:
        DataError: fewer than three corners, half a corner, or a coordinate that is no number.
    """
    numbers = _checked(points)
    sides = np.abs(np.diff(numbers.reshape(-1, 2), axis=0, append=numbers[None, :2])).max(axis=1)
    if sides.sum() > LONGEST:
        raise DataError(f"its polygon has an outline of {sides.sum():.0f} pixels; correct segmentation")
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
        raise DataError(
            f"its polygon has {len(points)} numbers; three corners are six, x and y of each; correct segmentation"
        )
    wrong = next((p for p in points if type(p) not in (int, float) or not abs(p) <= FAR), None)
    if wrong is not None:
        raise DataError(f"its polygon holds {shown(wrong)}, which is no coordinate in pixels; correct segmentation")
    return np.array(points, np.float64)


def _line(start: Array, end: Array) -> Array:
    """Return the points of the fine grid from one corner to another, both included.

    One point per step along the longer side; the other coordinate is rounded as it is seen from the corner that lies
    further left (or higher, where the line is steep), whichever way the line goes.
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
