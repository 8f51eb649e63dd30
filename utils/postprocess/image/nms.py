"""Non-maximum suppression."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array, InputError

BLOCK = 256
"""Detections compared with one another at a time, so that their overlaps fit into the CPU's cache."""


class Detections(NamedTuple):
    """Detections in one image.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels.
        scores: N float64, higher is better.
        classes: N int64.
    """

    boxes: Array
    scores: Array
    classes: Array


def overlaps(one: Array, others: Array) -> Array:
    """Return the intersection over union of M x 4 and N x 4 boxes, M x N float64; 0 for boxes without area."""
    a, b = np.asarray(one, np.float64), np.asarray(others, np.float64)
    common = _shared(a, b, 0) * _shared(a, b, 1)
    union = areas(a)[:, None] + areas(b) - common
    found: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return found


def _shared(a: Array, b: Array, axis: int) -> Array:
    """Return the lengths of the intersections of M and N boxes along an axis, M x N.

    Separate axes, because NumPy is slow if its innermost loop is only over the two coordinates.
    """
    length = np.minimum(a[:, 2 + axis, None], b[:, 2 + axis]) - np.maximum(a[:, axis, None], b[:, axis])
    found: Array = np.maximum(length, 0.0, out=length)
    return found


def areas(boxes: Array) -> Array:
    """Return the areas of ... x 4 boxes; 0 if right is less than left, or bottom less than top."""
    sides = np.clip(boxes[..., 2:] - boxes[..., :2], 0.0, None)
    found: Array = sides[..., 0] * sides[..., 1]
    return found


def non_maximum_suppression(
    found: Detections, iou_threshold: float, limit: int, groups: Array | None = None
) -> Detections:
    """Return the best detections, at most ``limit``, none of which overlaps a better one of its class too much.

    Greedy, as torchvision's ``batched_nms``: keep the best, remove those of its class (or of its ``groups``, N int64)
    whose intersection over union with it is above the threshold, and repeat. Of equal scores the earlier one is better.
    Detections are processed in blocks in the order of their scores, until the limit is reached. Raises InputError if
    boxes, scores and classes have inconsistent shapes, or a score is NaN.
    """
    boxes, scores, labels = _checked(found)
    classes = labels if groups is None else groups
    order = np.argsort(-scores, kind="stable")
    kept = np.empty(0, np.intp)
    for start in range(0, len(order), BLOCK):
        if len(kept) >= limit:
            break
        block = order[start : start + BLOCK]
        beaten = _beats(boxes[kept], classes[kept], boxes[block], classes[block], iou_threshold).any(axis=0)
        kept = np.concatenate([kept, _greedy(block[~beaten], boxes, classes, iou_threshold, limit - len(kept))])
    return Detections(boxes[kept], scores[kept], labels[kept])


def _greedy(waiting: Array, boxes: Array, classes: Array, iou_threshold: float, limit: int) -> Array:
    """Return those of the detections at ``waiting``, best first, that are kept."""
    kept: list[int] = []
    beaten = _beats(boxes[waiting], classes[waiting], boxes[waiting], classes[waiting], iou_threshold)
    free = np.ones(len(waiting), bool)
    for place in range(len(waiting)):
        if free[place] and len(kept) < limit:
            kept.append(place)
            free &= ~beaten[place]
    return np.asarray(waiting[kept], np.intp)


def _beats(boxes: Array, classes: Array, others: Array, other_classes: Array, iou_threshold: float) -> Array:
    """Return, M x N, which of the others each box overlaps too much."""
    return np.asarray((overlaps(boxes, others) > iou_threshold) & (classes[:, None] == other_classes))


def _checked(found: Detections) -> Detections:
    boxes, scores = np.asarray(found.boxes, np.float64), np.asarray(found.scores, np.float64)
    classes = np.asarray(found.classes)
    if boxes.shape != (len(scores), 4) or scores.ndim != 1 or classes.shape != scores.shape:
        raise InputError(
            f"boxes of shape {boxes.shape}, scores of {scores.shape} and classes of {classes.shape} are "
            "inconsistent; pass N x 4, N and N"
        )
    if np.isnan(scores).any():
        raise InputError(f"{np.count_nonzero(np.isnan(scores))} of {len(scores)} scores are NaN; drop them first")
    return Detections(boxes, scores, classes.astype(np.int64))
