"""Non-maximum suppression: of boxes that lie over each other, the best one stays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.base import Array, InputError


class Detections(NamedTuple):
    """What was found in one picture, the best first.

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
    a, b = np.asarray(one, np.float64)[:, None], np.asarray(others, np.float64)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = np.clip(sides, 0.0, None).prod(axis=-1)
    union = areas(a) + areas(b) - common
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def areas(boxes: Array) -> Array:
    """Return the areas of ... x 4 boxes; 0 where right lies left of left, or bottom above top."""
    sides: Array = np.clip(boxes[..., 2:] - boxes[..., :2], 0.0, None).prod(axis=-1)
    return sides


def non_maximum_suppression(found: Detections, iou_threshold: float, limit: int) -> Detections:
    """Return the best detections, at most ``limit``, none overlapping a better one of its own class too much.

    Greedy, as torchvision's ``batched_nms``: the best stays, those of its class whose intersection over union with it
    is above the threshold go, then the best of the rest, and so on. Of equal scores the earlier one is better. The time
    goes with the detections times those that stay.

    Args:
        found: in any order.
        iou_threshold: 0 to 1.
        limit: at least 0.

    Raises:
        InputError: boxes, scores and classes do not belong together, or a score is NaN.
    """
    boxes, scores, classes = _checked(found)
    waiting = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while waiting.size and len(kept) < limit:
        best, waiting = int(waiting[0]), waiting[1:]
        kept.append(best)
        beaten = overlaps(boxes[best : best + 1], boxes[waiting])[0] > iou_threshold
        waiting = waiting[~(beaten & (classes[waiting] == classes[best]))]
    return Detections(boxes[kept], scores[kept], classes[kept])


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
