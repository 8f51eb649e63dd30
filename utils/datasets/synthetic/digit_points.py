"""Key points of a handwritten digit, computed from its ink: the ends of its line, and where the line meets itself."""

from __future__ import annotations

import numpy as np

from engine import Array

POINTS = ("top", "bottom", "crossing")
"""``top`` and ``bottom``: the highest and the lowest end of the line; a single one by its half of the ink.
``crossing``: the point nearest to the centre of the ink where three lines or more meet. A 0 usually has none."""

SPUR = 0.17
"""Branches of the centre line up to this share of the ink's longer side are artefacts of thinning, and are removed."""

_AROUND = np.array([(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)])


def points_of(ink: Array) -> Array:
    """Return the points of one digit, 3 x 2 float64: x and y in pixels from the left and upper edge, NaN for none.

    The ink is thinned to a line of one pixel (Zhang and Suen, 1984, by scikit-image), from which short branches are
    removed. An end of the line is a pixel with one neighbour; a crossing is a group of pixels with three or more. A
    thinned line begins half a stroke's width inside the ink.

    Args:
        ink: H x W booleans, the ink of the digit alone.
    """
    from skimage.morphology import skeletonize

    rows, columns = np.nonzero(ink)
    found = np.full((len(POINTS), 2), np.nan)
    if not len(rows):
        return found
    top, left = int(rows.min()), int(columns.min())
    part = np.pad(ink[top : rows.max() + 1, left : columns.max() + 1], 1)
    line = _without_spurs(skeletonize(part), SPUR * max(part.shape))
    counts = _neighbours(line)
    ends = np.argwhere(line & (counts == 1)).astype(np.float64)
    meets = _groups(line & (counts >= 3))
    middle = np.argwhere(part).mean(axis=0)
    if len(ends) == 1:
        found[0 if ends[0, 0] < middle[0] else 1] = ends[0, ::-1]
    elif len(ends):
        order = np.argsort(ends[:, 0], kind="stable")
        found[0], found[1] = ends[order[0], ::-1], ends[order[-1], ::-1]
    if len(meets):
        found[2] = meets[np.linalg.norm(meets - middle, axis=1).argmin(), ::-1]
    moved: Array = found + np.array([left, top]) - 0.5  # without the margin, and to the centre of a pixel
    return moved


def _neighbours(line: Array) -> Array:
    """Return the number of the eight neighbours of each pixel that belong to the line; its margin is empty."""
    counts = np.zeros(line.shape, np.int64)
    for down, right in _AROUND.tolist():
        counts += np.roll(line, (down, right), (0, 1))
    return counts


def _without_spurs(line: Array, length: float) -> Array:
    """Return a line without the branches from an end to a crossing that have at most this many pixels."""
    counts = _neighbours(line)
    kept = line.copy()
    for end in np.argwhere(line & (counts == 1)):
        path = _branch(line, counts, tuple(end.tolist()), length)
        if path:
            kept[tuple(np.array(path).T)] = False
    return kept


def _branch(line: Array, counts: Array, end: tuple[int, int], length: float) -> list[tuple[int, int]]:
    """Return the pixels from an end to the next crossing, without it; empty if there is none within the length."""
    path, place = [end], end
    while len(path) <= length:
        around = [(place[0] + down, place[1] + right) for down, right in _AROUND.tolist()]
        ahead = [one for one in around if line[one] and one not in path]
        if not ahead:
            return []
        if any(counts[one] >= 3 for one in ahead):
            return path
        place = ahead[0]
        path.append(place)
    return []


def _groups(marked: Array) -> Array:
    """Return the centres (row, column) of the groups of touching pixels, N x 2 float64."""
    left = {tuple(one) for one in np.argwhere(marked).tolist()}
    centres = []
    while left:
        group = [left.pop()]
        for row, column in group:
            near = {(row + down, column + right) for down, right in _AROUND.tolist()} & left
            left -= near
            group.extend(near)
        centres.append(np.mean(group, axis=0))
    return np.array(centres, np.float64).reshape(-1, 2)
