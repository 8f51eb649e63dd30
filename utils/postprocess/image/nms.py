"""Non-maximum suppression: of boxes that lie over each other, the best one stays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array, InputError

BLOCK = 256
"""Detections that are compared with one another at a time: their overlaps fit into a processor's cache."""


class Detections(NamedTuple):
    """What was found in one image, the best first.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels.
        scores: N float64, higher is surer.
        classes: N int64.
    """

    boxes: Array
    scores: Array
    classes: Array


def overlaps(one: Array, others: Array) -> Array:
    """Return the intersection over union of M x 4 and N x 4 boxes, M x N float64; 0 where a box has no area."""
    a, b = np.asarray(one, np.float64), np.asarray(others, np.float64)
    common = _shared(a, b, 0) * _shared(a, b, 1)
    union = areas(a)[:, None] + areas(b) - common
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def _shared(a: Array, b: Array, axis: int) -> Array:
    """Return how long the stretches are that M and N boxes share along an axis, M x N.

    An axis at a time: NumPy is slow where its innermost loop is as short as a point.
    """
    length = np.minimum(a[:, 2 + axis, None], b[:, 2 + axis]) - np.maximum(a[:, axis, None], b[:, axis])
    stretches: Array = np.maximum(length, 0.0, out=length)
    return stretches


def areas(boxes: Array) -> Array:
    """Return the areas of ... x 4 boxes; 0 where right lies left of left, or bottom above top."""
    sides = np.clip(boxes[..., 2:] - boxes[..., :2], 0.0, None)
    product: Array = sides[..., 0] * sides[..., 1]
    return product


def non_maximum_suppression(
    found: Detections, iou_threshold: float, limit: int, groups: Array | None = None
) -> Detections:
    """Return the best detections, at most ``limit``, none overlapping a better one of its own class too much.

    Greedy, as torchvision's ``batched_nms``: the best stays, those of its class whose intersection over union with it
    is above the threshold go, then the best of the rest, and so on. Of equal scores the earlier one is better. The best
    are looked at first, a block at a time, and no more of them than it takes to fill the limit.

    Args:
        found: in any order.
        iou_threshold: 0 to 1.
        limit: at least 0.
        groups: N int64, of what competes; ``None``: the classes.

    Raises:
        InputError: boxes, scores and classes do not belong together, or a score is NaN.
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
    """Return which of the detections at some places, the surest first, stay."""
    kept: list[int] = []
    beaten = _beats(boxes[waiting], classes[waiting], boxes[waiting], classes[waiting], iou_threshold)
    free = np.ones(len(waiting), bool)
    for place in range(len(waiting)):
        if free[place] and len(kept) < limit:
            kept.append(place)
            free &= ~beaten[place]
    return np.asarray(waiting[kept], np.intp)


def _beats(boxes: Array, classes: Array, others: Array, other_classes: Array, iou_threshold: float) -> Array:
    """Say, M x N, which of the others each box overlaps too much."""
    beaten: Array = (overlaps(boxes, others) > iou_threshold) & (classes[:, None] == other_classes)
    return beaten


def _checked(found: Detections) -> Detections:
    boxes, scores = np.asarray(found.boxes, np.float64), np.asarray(found.scores, np.float64)
    classes = np.asarray(found.classes)
    if boxes.shape != (len(scores), 4) or scores.ndim != 1 or classes.shape != scores.shape:
        raise InputError(
            f"boxes of shape {boxes.shape}, scores of {scores.shape} and classes of {classes.shape} do not belong "
            "together; pass N x 4, N and N"
        )
    if np.isnan(scores).any():
        raise InputError(f"{np.count_nonzero(np.isnan(scores))} of {len(scores)} scores are NaN; drop them first")
    return Detections(boxes, scores, classes.astype(np.int64))
