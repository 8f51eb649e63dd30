"""Connected components of a binary map, by runs of its rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array


class Runs(NamedTuple):
    """Set pixels of a map, as runs within its rows, sorted by component.

    Attributes:
        rows, starts, ends: row, first column and column after the last one of each run; int64.
        bounds: N + 1 numbers: component ``i`` has the runs from ``bounds[i]`` to ``bounds[i + 1]``, in their order.
    """

    rows: Array
    starts: Array
    ends: Array
    bounds: Array

    def __len__(self) -> int:
        """Return the number of components."""
        return len(self.bounds) - 1

    def of(self, component: int) -> tuple[Array, Array, Array]:
        """Return rows, starts and ends of a component."""
        part = slice(int(self.bounds[component]), int(self.bounds[component + 1]))
        return self.rows[part], self.starts[part], self.ends[part]


def components(mask: Array) -> Runs:
    """Return the components of an H x W mask, pixels connected at sides or corners, in the order of their first pixels.

    Touching runs of neighbouring rows are joined by linking their roots until all agree, which needs a few passes over
    the runs instead of one over the pixels for each component.
    """
    height, width = mask.shape
    stride = width + 2  # so that no run touches one of the next row's beginning
    flat = np.zeros((height, stride), np.int8)
    flat[:, 1:-1] = mask
    change = np.diff(flat.reshape(-1), append=np.int8(0))
    starts, ends = np.flatnonzero(change == 1) + 1, np.flatnonzero(change == -1) + 1
    labels = _labels(starts, ends, stride)
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    rows = starts // stride
    first = rows * stride + 1
    return Runs(rows[order], (starts - first)[order], (ends - first)[order], np.append(0, np.cumsum(counts)))


def _labels(starts: Array, ends: Array, stride: int) -> Array:
    """Return for each run the smallest number of a run of its component."""
    # In the row below, run j touches run i where it ends at i's start or later, and starts at i's end or earlier.
    low = np.searchsorted(ends, starts + stride, side="left")
    high = np.searchsorted(starts, ends + stride, side="right")
    counts = np.maximum(high - low, 0)
    upper = np.repeat(np.arange(len(starts)), counts)
    lower = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(len(upper))
    parents = np.arange(len(starts))
    while True:
        one, other = parents[upper], parents[lower]
        differ = one != other
        if not differ.any():
            return parents
        upper, lower, one, other = upper[differ], lower[differ], one[differ], other[differ]
        np.minimum.at(parents, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(parents, above := parents[parents]):
            parents = above
