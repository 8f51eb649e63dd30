"""Common areas of polygons."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from engine import Array

Point: TypeAlias = tuple[float, float]
Triangles: TypeAlias = "list[tuple[Point, Point, Point]]"


class Polygon:
    """An outline split into triangles, from which all areas are computed.

    An outline of 2N points is a band of N - 1 quadrilaterals between its upper and its lower side, as in labels of
    text; for an odd number the last point of the lower side is repeated.

    Args:
        outline: N x 2 (x, y), N at least 3, clockwise or counterclockwise.
    """

    def __init__(self, outline: Array) -> None:
        points = np.asarray(outline, np.float64)
        self.low, self.high = points.min(axis=0), points.max(axis=0)
        self._triangles = _triangles([(float(x), float(y)) for x, y in points])
        self.area = sum(abs(_twice(triangle)) / 2 for triangle in self._triangles)

    def common(self, other: Polygon) -> float:
        """Return the common area of two polygons, in square pixels."""
        if (self.low >= other.high).any() or (other.low >= self.high).any():
            return 0.0
        return sum(_overlap(one, another) for one in self._triangles for another in other._triangles)

    def overlap(self, other: Polygon) -> float:
        """Return the intersection over union, 0 to 1; 0 if both areas are 0."""
        # The parts of a self-intersecting outline that are in two triangles count twice, limited by the areas.
        common = min(self.common(other), self.area, other.area)
        union = self.area + other.area - common
        return common / union if union > 0 else 0.0


def _triangles(points: list[Point]) -> Triangles:
    if len(points) % 2:
        points = [*points, points[-1]]
    count = len(points) // 2
    upper, lower = points[:count], points[count:][::-1]
    found: Triangles = []
    for a, b, c, d in zip(upper[:-1], upper[1:], lower[1:], lower[:-1], strict=True):
        first, second = ((a, b, c), (a, c, d)), ((a, b, d), (b, c, d))
        # Of the two ways to split a concave quadrilateral, the one inside it has the smaller area.
        sizes = [sum(abs(_twice(triangle)) for triangle in way) for way in (first, second)]
        found += [one for one in (first if sizes[0] <= sizes[1] else second) if _twice(one) != 0]
    return found


def _twice(triangle: tuple[Point, Point, Point]) -> float:
    (ax, ay), (bx, by), (cx, cy) = triangle
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def _overlap(one: tuple[Point, Point, Point], other: tuple[Point, Point, Point]) -> float:
    """Return the common area of two triangles: one is clipped at each side of the other (Sutherland, Hodgman)."""
    if _twice(other) < 0:
        other = other[::-1]
    part: list[Point] = list(one)
    for (ax, ay), (bx, by) in zip(other, (*other[1:], other[0]), strict=True):
        sides = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for x, y in part]
        kept: list[Point] = []
        for i, (point, side) in enumerate(zip(part, sides, strict=True)):
            before, was = part[i - 1], sides[i - 1]
            if (side >= 0) != (was >= 0):
                share = was / (was - side)
                kept.append((before[0] + (point[0] - before[0]) * share, before[1] + (point[1] - before[1]) * share))
            if side >= 0:
                kept.append(point)
        if len(kept) < 3:
            return 0.0
        part = kept
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(part, (*part[1:], part[0]), strict=True))) / 2
