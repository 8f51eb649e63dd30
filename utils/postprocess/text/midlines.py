"""Midlines of bent components, and the bands around them, for text along a curve."""

from __future__ import annotations

import numpy as np

from engine import Array

LARGEST = 320
"""Maximum of the longer side of the map of a component; larger ones are reduced first."""

POINTS = 16
"""Maximum points of a midline."""


def midline(rows: Array, starts: Array, ends: Array) -> Array:
    """Return the midline of a component, N x 2 (x, y), from left to right, or from top to bottom.

    The component is given by its runs (:class:`~utils.postprocess.text.components.Runs`). Distances of pixels from both
    ends are measured within it, so that a midline may bend back. The midline consists of the centroids of the pixels
    between two such distances, extended to the ends of the component.
    """
    mask, left, top, scale = _drawn(rows, starts, ends)
    y, x = np.nonzero(mask)
    first = _distances(mask, (int(y[0]), int(x[0])))
    one = np.unravel_index(int(np.argmax(first)), mask.shape)
    from_one = _distances(mask, (int(one[0]), int(one[1])))
    other = np.unravel_index(int(np.argmax(from_one)), mask.shape)
    from_other = _distances(mask, (int(other[0]), int(other[1])))
    way = (from_one - from_other)[y, x].astype(np.float64)
    length = max(1.0, float(np.ptp(way)) / 2)
    count = int(np.clip(round(2 * length / max(1.0, len(x) / length)), 3, POINTS))
    places = np.minimum(((way - way.min()) / max(1.0, np.ptp(way)) * count).astype(np.int64), count - 1)
    sizes = np.bincount(places, minlength=count)
    centres = np.stack([np.bincount(places, weights=column, minlength=count) for column in (x, y)], axis=1)
    points = centres[sizes > 0] / sizes[sizes > 0, None]
    points[1:-1] = (points[:-2] + 2 * points[1:-1] + points[2:]) / 4
    if len(points) > 1:
        points[0] += (points[0] - points[1]) / 2
        points[-1] += (points[-1] - points[-2]) / 2
    run = points[-1] - points[0]
    if run[0] < 0 or (abs(run[0]) * 4 < abs(run[1]) and run[1] < 0):
        points = points[::-1]
    return (points + 0.5) * scale + (left, top)


def band(points: Array, half: float, beyond: float) -> Array:
    """Return the outline of the band around a midline, 2N x 2: its upper side forwards, its lower one backwards.

    ``half`` is half the band's width, ``beyond`` its extension at both ends.
    """
    line = points.copy()
    line[0] += _unit(points[0] - points[1]) * beyond
    line[-1] += _unit(points[-1] - points[-2]) * beyond
    directions = np.stack([_unit(one) for one in np.gradient(line, axis=0)])
    across = np.stack([-directions[:, 1], directions[:, 0]], axis=1) * half
    return np.concatenate([line - across, (line + across)[::-1]])


def bow(points: Array) -> float:
    """Return the maximum distance of a midline from the straight line between its ends."""
    run = points[-1] - points[0]
    away = points - points[0]
    length = float(np.hypot(*run))
    if length < 1e-9:
        return float(np.hypot(away[:, 0], away[:, 1]).max())
    return float(np.abs(away[:, 0] * run[1] - away[:, 1] * run[0]).max() / length)


def length_of(points: Array) -> float:
    """Return the length of a path through points."""
    steps = np.diff(points, axis=0)
    return float(np.hypot(steps[:, 0], steps[:, 1]).sum())


def _unit(vector: Array) -> Array:
    length = float(np.hypot(*vector))
    return vector / length if length > 0 else np.array([1.0, 0.0])


def _drawn(rows: Array, starts: Array, ends: Array) -> tuple[Array, int, int, int]:
    """Return a component as a separate map, the position of its corner, and its reduction factor."""
    top, left = int(rows.min()), int(starts.min())
    height, width = int(rows.max()) - top + 1, int(ends.max()) - left
    scale = -(-max(height, width) // LARGEST)
    mask = np.zeros((-(-height // scale), -(-width // scale)), bool)
    columns = (rows - top) // scale, starts - left, ends - left
    for row, start, end in zip(*(column.tolist() for column in columns), strict=True):
        mask[row, start // scale : -(-end // scale)] = True
    return mask, left, top, scale


def _distances(mask: Array, start: tuple[int, int]) -> Array:
    """Return the distance in steps of every pixel of a component from one of its pixels; -1 outside.

    Steps go to four and to eight neighbours alternately, which approximates the length of diagonals.
    """
    height, width = mask.shape
    stride = width + 2
    open_ = np.zeros((height + 2, stride), bool)
    open_[1:-1, 1:-1] = mask
    found = np.full(open_.size, -1, np.int32)
    free = open_.reshape(-1)
    sides = np.array([-stride, -1, 1, stride])
    around = np.concatenate([sides, [-stride - 1, 1 - stride, stride - 1, stride + 1]])
    front = np.array([(start[0] + 1) * stride + start[1] + 1])
    free[front] = False
    step = 0
    while front.size:
        found[front] = step
        step += 1
        front = (front[:, None] + (sides if step % 2 else around)).reshape(-1)
        front = np.unique(front[free[front]])
        free[front] = False
    return found.reshape(height + 2, stride)[1:-1, 1:-1]
