"""Anchors: reference boxes at every cell of a feature map, which a network moves and resizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine import Array

DELTA_CLIP = math.log(1000.0 / 16)
"""Maximum logarithm of a size ratio, torchvision's, so that exp does not overflow."""


def moved(deltas: Array, anchors: Array, weights: Sequence[float] = (1, 1, 1, 1), clip: float = DELTA_CLIP) -> Array:
    """Return N x 4 boxes (left, top, right, bottom) from anchors (N x 4 corners) and a network's deltas, float32.

    Girshick et al. (2014), appendix C: the centre moves by a share of the anchor's size, the size is scaled by exp.
    Deltas are N x 4: x and y shifts, logarithms (at most ``clip``) of the ratios of width and height, each times its
    weight.
    """
    deltas, anchors = np.asarray(deltas, np.float32), np.asarray(anchors, np.float32)
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + np.float32(0.5) * size
    shift = deltas / np.array(weights, np.float32)
    middle = shift[:, :2] * size + centre
    half = np.float32(0.5) * (np.exp(np.minimum(shift[:, 2:], np.float32(clip))) * size)
    return np.concatenate([middle - half, middle + half], axis=1)


def cell_anchors(sizes: Sequence[float], ratios: Sequence[float]) -> Array:
    """Return the anchors around a cell's corner, (ratios x sizes) x 4 float32, whole pixels: ratio = height / width."""
    height = np.sqrt(np.array(ratios, np.float32))
    width = 1 / height
    sides = np.array(sizes, np.float32)
    across, down = (width[:, None] * sides).reshape(-1), (height[:, None] * sides).reshape(-1)
    return np.round(np.stack([-across, -down, across, down], axis=1) / 2)


def at_cells(cell: Array, rows: Array, columns: Array, stride: tuple[int, int]) -> Array:
    """Return anchors (N x 4, one per position) moved to cells; ``stride`` is (vertical, horizontal) in pixels."""
    start = np.stack([columns * stride[1], rows * stride[0]] * 2, axis=1).astype(np.float32)
    return start + cell
