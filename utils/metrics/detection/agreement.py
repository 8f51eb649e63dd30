"""How far two programs' detections in an image agree."""

from __future__ import annotations

import numpy as np

from engine import Array
from utils.postprocess.image.nms import Detections, overlaps

LEAST = 0.5
"""Intersection over union from which on two boxes may be of the same object."""


def agreement(one: Detections, other: Detections) -> float:
    """Return 1 where two sets of detections are the same, 0 where no box of one is a box of the other.

    Boxes of a class are paired, the surest of ``other`` first, with those that overlap them most. The share is Dice's,
    weighted by the scores: 2 sum(IoU x the smaller score) over the pairs / (sum of all scores of both). So what is
    unsure counts little, and boxes, scores and classes all count. Negative scores count as 0.
    """
    ours, theirs = (np.clip(found.scores, 0.0, None) for found in (one, other))
    total = float(ours.sum() + theirs.sum())
    if total == 0:
        return 1.0
    shares = overlaps(other.boxes, one.boxes)
    shares = np.where(other.classes[:, None] == one.classes[None], shares, 0.0)
    return 2.0 * _common(shares, theirs, ours) / total


def _common(shares: Array, theirs: Array, ours: Array) -> float:
    common, free = 0.0, np.ones(len(ours), bool)
    for row in np.argsort(-theirs, kind="stable"):
        able = np.where(free, shares[row], 0.0)
        best = int(able.argmax()) if able.size else -1
        if best < 0 or able[best] < LEAST:
            continue
        free[best] = False
        common += float(able[best] * min(theirs[row], ours[best]))
    return common
