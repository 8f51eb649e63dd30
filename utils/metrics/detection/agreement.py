"""Agreement of two programs' detections in an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine import Array
from utils.postprocess.image.nms import overlaps

Overlap = Callable[[Any, Any], Array]

LEAST = 0.5
"""Minimum intersection over union of two boxes of the same object."""


def agreement(one: Any, other: Any, overlap: Overlap | None = None) -> float:
    """Return the agreement of two sets of detections: 1 if they are the same, 0 if no boxes match.

    Boxes of a class are paired greedily, those of ``other`` by falling score, with the boxes that overlap them most.
    The result is Dice's coefficient weighted by the scores: 2 sum(IoU x smaller score) over the pairs / (sum of all
    scores of both), so that uncertain detections count little. Negative scores count as 0.

    Both have ``boxes``, ``scores`` and ``classes`` as :class:`~utils.postprocess.image.nms.Detections`. ``overlap``
    returns the overlaps of M objects of ``other`` and N of ``one``, M x N, in place of those of the boxes.
    """
    ours, theirs = (np.clip(found.scores, 0.0, None) for found in (one, other))
    total = float(ours.sum() + theirs.sum())
    if total == 0:
        return 1.0
    shares = overlaps(other.boxes, one.boxes) if overlap is None else overlap(other, one)
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
