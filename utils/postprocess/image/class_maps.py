"""From a segmentation model's output to the class of every pixel, at any size, without holding all scores at it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from engine import Array

NO_CLASS = -1
"""Class of a pixel for which the model's output holds NaN."""

Axis: TypeAlias = "tuple[Array, Array, Array]"
"""For each place along an axis the two cells it lies between, and the weight of the second, float32."""


class View(NamedTuple):
    """How an image lies in a model's input, and at which size its answer is wanted; lengths are in pixels.

    Attributes:
        size: height and width of the answer.
        start, extent: row and column where the image begins in the input, and how many of each it covers.
        canvas: height and width of the input.
    """

    size: tuple[int, int]
    start: tuple[int, int]
    extent: tuple[int, int]
    canvas: tuple[int, int]


def upsampled(scores: Array, view: View) -> Array:
    """Return C x h x w scores at the answer's size, C x H x W float32: bilinear, between the centres of the cells.

    Where the image covers the whole input this is ``torch.nn.functional.interpolate(scores, size, mode="bilinear",
    align_corners=False)``; where it covers whole cells, that of the scores cut to them. Beyond the outermost centres
    the outermost cells go on.
    """
    rows, columns = _axes(scores.shape[-2:], view)
    return np.stack([_resized(one.astype(np.float32), rows, columns) for one in scores])


def best_classes(scores: Array, view: View) -> Array:
    """Return the class with the highest score for every pixel of the answer, H x W int16.

    Scores are resized as in :func:`upsampled`, one class at a time, so that no more than a few arrays of the answer's
    size are held, whatever the number of classes. Of equal scores the lower class wins, as with ``argmax``. A pixel for
    which any score is NaN is :data:`NO_CLASS`.

    Args:
        scores: C x h x w floats.
        view: how the image lies in the input.
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
    """Return 1 where the sigmoid of the scores, h x w, resized as in :func:`upsampled`, is at least the threshold.

    Args:
        scores: h x w floats before the sigmoid. view: how the image lies in the input.
        threshold: a probability above 0 and below 1.
    """
    found = _resized(scores.astype(np.float32), *_axes(scores.shape, view))
    least = np.float32(np.log(threshold / (1.0 - threshold)))
    classes = (found >= least).astype(np.int16)
    classes[np.isnan(found)] = NO_CLASS
    return classes


def log_odds(shares: Array) -> Array:
    """Return the numbers whose sigmoid is these probabilities, float32; 0 and 1 become finite."""
    least = np.float32(1e-30)
    inside = np.clip(shares.astype(np.float32), least, np.float32(1 - 2**-24))
    found: Array = np.log(inside) - np.log1p(-inside)
    return found


def logarithms(shares: Array) -> Array:
    """Return the natural logarithms of probabilities, float32; that of 0 is finite.

    Between cells they are resized as the logits are, whose softmax the probabilities were: the two differ by a number
    that is the same for all classes of a cell.
    """
    found: Array = np.log(np.maximum(shares.astype(np.float32), np.float32(1e-30)))
    return found


def nearest_classes(classes: Array, view: View) -> Array:
    """Return h x w class numbers at the answer's size, H x W int16: the cell that a pixel's centre lies in.

    Where the image covers the whole input this is Pillow's ``nearest``, its sums of steps included.
    """
    taken = []
    for count, length, start, extent, canvas in zip(
        classes.shape, view.size, view.start, view.extent, view.canvas, strict=True
    ):
        steps = np.full(length, count * extent / canvas / length)
        steps[0] = start * count / canvas + 0.5 * steps[0]
        taken.append(np.clip(np.floor(np.cumsum(steps)), 0, count - 1).astype(np.intp))
    rows, columns = taken
    found: Array = classes[rows[:, None], columns].astype(np.int16)
    return found


def _centres(cells: tuple[int, ...], view: View) -> list[Array]:
    """Return where the centres of the answer's rows and columns lie among the centres of the cells.

    In float32, as PyTorch has them: where cells differ much, the rounding of a place shows.
    """
    places = []
    for count, length, start, extent, canvas in zip(
        cells, view.size, view.start, view.extent, view.canvas, strict=True
    ):
        step = np.float32(count * extent / canvas / length)
        offset = np.float32(start * count / canvas - 0.5)
        places.append((np.arange(length, dtype=np.float32) + np.float32(0.5)) * step + offset)
    return places


def _axes(cells: tuple[int, ...], view: View) -> tuple[Axis, Axis]:
    """Return between which cells each row and each column of the answer lies."""
    found = []
    for places, count, start, extent, canvas in zip(
        _centres(cells, view), cells, view.start, view.extent, view.canvas, strict=True
    ):
        first = start * count // canvas  # whole cells that hold any of the image
        last = min(count, -(-(start + extent) * count // canvas)) - 1
        inside = np.clip(places, first, last)
        lower = np.floor(inside).astype(np.intp)
        found.append((lower, np.minimum(lower + 1, last), (inside - lower).astype(np.float32)))
    rows, columns = found
    return rows, columns


def _resized(plane: Array, rows: Axis, columns: Axis) -> Array:
    """Return an h x w plane at the places of the axes."""
    top, bottom, down = rows
    left, right, across = columns
    tall = plane[top]
    if down.any():
        tall = tall * (1 - down)[:, None] + plane[bottom] * down[:, None]
    if not across.any():
        return tall[:, left]
    resized: Array = tall[:, left] * (1 - across) + tall[:, right] * across
    return resized
