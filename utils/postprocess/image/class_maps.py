"""Classes of pixels from a segmentation model's output, at any size, without all scores at that size in memory."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from engine import Array

NO_CLASS = -1
"""Class of a pixel with NaN in the model's output."""

Axis: TypeAlias = "tuple[Array, Array, Array]"
"""For each position along an axis its two neighbouring cells, and the weight of the second, float32."""


class View(NamedTuple):
    """Position of an image in a model's input, and the size of the result; lengths are in pixels.

    Attributes:
        size: height and width of the result.
        start, extent: first row and column of the image in the input, and its height and width there.
        canvas: height and width of the input.
    """

    size: tuple[int, int]
    start: tuple[int, int]
    extent: tuple[int, int]
    canvas: tuple[int, int]


def upsampled(scores: Array, view: View) -> Array:
    """Return C x h x w scores at the result's size, C x H x W float32: bilinear, between the centres of cells.

    If the image covers the whole input this is ``torch.nn.functional.interpolate(scores, size, mode="bilinear",
    align_corners=False)``; if it covers whole cells, that of the scores cut to them. Outermost cells are extended.
    """
    rows, columns = _axes(scores.shape[-2:], view)
    return np.stack([_resized(one.astype(np.float32), rows, columns) for one in scores])


def best_classes(scores: Array, view: View) -> Array:
    """Return the class with the highest of C x h x w scores for every pixel of the result, H x W int16.

    Scores are resized as in :func:`upsampled`, one class at a time, so that memory does not grow with the number of
    classes. The lower one of classes with equal scores wins, as with ``argmax``. A pixel with a NaN score is
    :data:`NO_CLASS`.
    """
    rows, columns = _axes(scores.shape[-2:], view)
    best = _resized(scores[0].astype(np.float32), rows, columns)
    classes = np.zeros(best.shape, np.int16)
    lost = np.isnan(best)
    for place in range(1, len(scores)):
        found = _resized(scores[place].astype(np.float32), rows, columns)
        lost |= np.isnan(found)
        better = found > best
        np.copyto(best, found, where=better)
        classes[better] = place
    classes[lost] = NO_CLASS
    return classes


def foreground(scores: Array, view: View, threshold: float) -> Array:
    """Return 1 where the sigmoid of h x w scores resized as in :func:`upsampled` is at least the threshold, else 0.

    The threshold is a probability above 0 and below 1.
    """
    found = _resized(scores.astype(np.float32), *_axes(scores.shape, view))
    least = np.float32(np.log(threshold / (1.0 - threshold)))
    classes = (found >= least).astype(np.int16)
    classes[np.isnan(found)] = NO_CLASS
    return classes


def log_odds(shares: Array) -> Array:
    """Return the inverse of the sigmoid of probabilities, float32; finite for 0 and 1."""
    least = np.float32(1e-30)
    inside = np.clip(shares.astype(np.float32), least, np.float32(1 - 2**-24))
    return np.log(inside) - np.log1p(-inside)


def logarithms(shares: Array) -> Array:
    """Return the natural logarithms of probabilities, float32; finite for 0.

    Their interpolation gives the same classes as that of the logits of the softmax, because in each cell the two differ
    by a number that is the same for all classes.
    """
    return np.log(np.maximum(shares.astype(np.float32), np.float32(1e-30)))


def nearest_classes(classes: Array, view: View) -> Array:
    """Return h x w classes at the result's size, H x W int16: that of the cell containing a pixel's centre.

    If the image covers the whole input this equals Pillow's ``nearest``, including its rounding of summed steps.
    """
    taken, axes = [], zip(classes.shape, view.size, view.start, view.extent, view.canvas, strict=True)
    for count, length, start, extent, canvas in axes:
        steps = np.full(length, count * extent / canvas / length)
        steps[0] = start * count / canvas + 0.5 * steps[0]
        taken.append(np.clip(np.floor(np.cumsum(steps)), 0, count - 1).astype(np.intp))
    rows, columns = taken
    return np.asarray(classes[rows[:, None], columns], np.int16)


def _axes(cells: tuple[int, ...], view: View) -> tuple[Axis, Axis]:
    """Return the neighbouring cells of each row and each column of the result.

    Coordinates are float32 as in PyTorch, because the rounding is visible where neighbouring cells differ much.
    """
    found, axes = [], zip(cells, view.size, view.start, view.extent, view.canvas, strict=True)
    for count, length, start, extent, canvas in axes:
        step = np.float32(count * extent / canvas / length)
        offset = np.float32(start * count / canvas - 0.5)
        places = (np.arange(length, dtype=np.float32) + np.float32(0.5)) * step + offset
        first = start * count // canvas  # whole cells that hold any of the image
        last = min(count, -(-(start + extent) * count // canvas)) - 1
        inside = np.clip(places, first, last)
        lower = np.floor(inside).astype(np.intp)
        found.append((lower, np.minimum(lower + 1, last), (inside - lower).astype(np.float32)))
    rows, columns = found
    return rows, columns


def _resized(plane: Array, rows: Axis, columns: Axis) -> Array:
    """Return an h x w plane at the positions of the axes."""
    top, bottom, down = rows
    left, right, across = columns
    tall = plane[top]
    if down.any():
        tall = tall * (1 - down)[:, None] + plane[bottom] * down[:, None]
    if not across.any():
        return tall[:, left]
    found: Array = tall[:, left] * (1 - across) + tall[:, right] * across
    return found
