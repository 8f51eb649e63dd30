"""Reading order of a page's lines: top to bottom, left to right, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array

ONE_ROW = 0.5
"""Maximum distance of the vertical centres of two lines in a row, in heights of the lower one."""

GUTTER = 1.0
"""Minimum distance of columns, in heights of a line."""

LINES = 3
"""Minimum lines of a column."""


def reading_order(outlines: Sequence[Array]) -> list[int]:
    """Return the indices of lines, given by outlines of N x 2 (x, y), in reading order.

    The page is cut into bands along horizontal gaps. Neighbouring bands with a common gutter form columns, read one
    after the other, each in the same way. Within a band, rows are read from left to right. Ties keep the order of the
    lines, so the result is deterministic.
    """
    if not outlines:
        return []
    boxes = np.array([[*one.min(axis=0), *one.max(axis=0)] for one in outlines])
    return _ordered(list(range(len(boxes))), boxes)


def _ordered(places: list[int], boxes: Array) -> list[int]:
    bands = _split(places, boxes, 1, 0.0)
    result: list[int] = []
    first = 0
    while first < len(bands):
        last, columns = _columns(bands, first, boxes)
        if columns:
            result += [place for column in columns for place in _ordered(column, boxes)]
        else:
            result += _rows(bands[first], boxes)
        first = last
    return result


def _columns(bands: list[list[int]], first: int, boxes: Array) -> tuple[int, list[list[int]]]:
    """Return the columns that begin in a band, if any, and the index of the next band."""
    best: list[list[int]] = []
    end, group = first + 1, list[int]()
    for last in range(first, len(bands)):
        group = group + bands[last]
        found = _split(group, boxes, 0, GUTTER * float(np.median(boxes[group, 3] - boxes[group, 1])))
        if len(found) < 2:
            break
        if all(len(column) >= LINES for column in found):
            best, end = found, last + 1
    return end, best


def _split(places: list[int], boxes: Array, axis: int, gap: float) -> list[list[int]]:
    """Return groups that are separated by more than a gap along an axis (0: x, 1: y), in order."""
    order = sorted(places, key=lambda place: (boxes[place, axis], place))
    groups = [[order[0]]]
    end = boxes[order[0], axis + 2]
    for place in order[1:]:
        if boxes[place, axis] > end + gap:
            groups.append([])
        groups[-1].append(place)
        end = max(end, boxes[place, axis + 2])
    return groups


def _rows(places: list[int], boxes: Array) -> list[int]:
    """Return the lines of a band row by row; a row has the lines whose centre is near that of its first line."""
    middles, heights = (boxes[:, 1] + boxes[:, 3]) / 2, boxes[:, 3] - boxes[:, 1]
    left = sorted(places, key=lambda place: (middles[place], place))
    result: list[int] = []
    while left:
        head = left[0]
        row = [one for one in left if middles[one] - middles[head] < ONE_ROW * min(heights[one], heights[head])]
        row = row or [head]  # a line without a height
        result += sorted(row, key=lambda place: (boxes[place, 0], place))
        left = [one for one in left if one not in set(row)]
    return result
