"""Rotated rectangles of minimum area around points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array


class Rectangle(NamedTuple):
    """A rotated rectangle.

    Attributes:
        centre: x, y. sides: lengths along ``axis`` and across it.
        axis: unit vector to the right, or straight down.
    """

    centre: Array
    sides: tuple[float, float]
    axis: Array

    def grown(self, distance: float) -> Rectangle:
        """Return the rectangle with every side moved outwards."""
        return self._replace(sides=(self.sides[0] + 2 * distance, self.sides[1] + 2 * distance))

    def along(self, axis: Array) -> Rectangle:
        """Return the same rectangle with the axis nearest to a direction, up to its sign."""
        if abs(float(self.axis @ axis)) >= abs(float(_turned(self.axis) @ axis)):
            return self
        return self._replace(sides=self.sides[::-1], axis=_rightwards(_turned(self.axis)))

    def corners(self) -> Array:
        """Return the corners, 4 x 2, clockwise on the screen, from the start of ``axis`` on its left side.

        The first is the upper left one for an axis to the right, and the upper right one for an axis straight down.
        """
        along, across = self.axis * self.sides[0] / 2, _turned(self.axis) * self.sides[1] / 2
        return np.stack([-along - across, along - across, along + across, across - along]) + self.centre


def _turned(axis: Array) -> Array:
    """Return a vector rotated by 90 degrees clockwise on a screen with y downwards: right becomes down."""
    return np.array([-axis[1], axis[0]])


def convex_hull(points: Array) -> Array:
    """Return the corners of the convex hull of N x 2 points, M x 2, in order, without collinear ones.

    Andrew's monotone chain; for fewer than three points, or points on a line, at most their ends are returned.
    """
    ordered = np.unique(np.asarray(points, np.float64), axis=0)
    if len(ordered) < 3:
        return ordered
    rows = ordered.tolist()
    chains = [_chain(rows), _chain(rows[::-1])]
    return np.array(chains[0][:-1] + chains[1][:-1])


def _chain(points: list[list[float]]) -> list[list[float]]:
    kept: list[list[float]] = []
    for x, y in points:
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2:]
            if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                break
            kept.pop()
        kept.append([x, y])
    return kept


def smallest_rectangle(points: Array) -> Rectangle:
    """Return the rectangle of minimum area around N x 2 points, N at least 1; its axis is that of the longer side.

    One of its sides lies on a side of the convex hull (Freeman and Shapira, 1975), so each of these is tried.
    """
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    if not (lengths > 0).any():
        return Rectangle(hull[0], (0.0, 0.0), np.array([1.0, 0.0]))
    axes = edges[lengths > 0] / lengths[lengths > 0, None]
    along, across = hull @ axes.T, hull @ np.stack([-axes[:, 1], axes[:, 0]])
    spans, depths = np.ptp(along, axis=0), np.ptp(across, axis=0)
    best = int(np.argmin(spans * depths))
    axis = axes[best]
    middle = [(values[:, best].min() + values[:, best].max()) / 2 for values in (along, across)]
    centre = axis * middle[0] + _turned(axis) * middle[1]
    sides = float(spans[best]), float(depths[best])
    if sides[0] < sides[1]:
        axis, sides = _turned(axis), sides[::-1]
    return Rectangle(centre, sides, _rightwards(axis))


def _rightwards(axis: Array) -> Array:
    """Return a direction or its opposite: the one to the right, or straight down."""
    return -axis if axis[0] < -1e-9 or (abs(axis[0]) <= 1e-9 and axis[1] < 0) else axis
