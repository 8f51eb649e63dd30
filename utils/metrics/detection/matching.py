"""Matching of an image's detections with its objects by the rules of COCO and of Pascal VOC."""

from __future__ import annotations

import numpy as np

from engine import Array
from utils.postprocess.image.nms import areas

IOU_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Minimum intersections over union of right detections: 0.50, 0.55, ..., 0.95."""

VOC_THRESHOLD = 0.5

SIZES = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Areas in square pixels, both ends included, by the name of the size: those of ``COCOeval``."""

_BITS = 1 << np.arange(len(IOU_THRESHOLDS), dtype=np.uint16)
_EVERY = np.uint16(_BITS.sum())
_LOWEST = np.minimum(IOU_THRESHOLDS, 1 - 1e-10)[:, None]
_ENDS = np.array(list(SIZES.values()))
_SIZE, _THRESHOLD = np.indices((len(_ENDS), len(_LOWEST)))


def shares(found: Array, objects: Array, crowd: Array) -> Array:
    """Return the intersections over union of M and N boxes, M x N; for crowds, over the detection's area."""
    sides = np.minimum(found[:, None, 2:], objects[None, :, 2:]) - np.maximum(found[:, None, :2], objects[None, :, :2])
    common = np.clip(sides, 0.0, None).prod(axis=-1)
    own, theirs = areas(found)[:, None], areas(objects)[None]
    union = np.where(crowd[None], own, own + theirs - common)
    result: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


def of_size(area: Array) -> Array:
    """Return, sizes x N, which areas are of each size of :data:`SIZES`."""
    inside: Array = (area >= _ENDS[:, :1]) & (area <= _ENDS[:, 1:])
    return inside


def outside(area: Array) -> Array:
    """Return, M x sizes, the bits of unmatched detections by their areas: ignored at every threshold if of another
    size."""
    bits: Array = np.where(of_size(area).T, np.uint16(0), _EVERY).astype(np.uint16)
    return bits


def match_coco(share: Array, crowd: Array, counted: Array, ignored: Array) -> tuple[Array, Array]:
    """Match a class's detections in an image, by falling score, as ``COCOeval.evaluateImg`` does.

    For each size and threshold a detection takes the free object it overlaps most, the last of equal ones; an object
    that does not count (a crowd, or of another size) only if no other is left. A crowd may be taken repeatedly. An
    unmatched detection of another size is ignored.

    Args:
        share: M x N overlaps (:func:`shares`).
        crowd: N booleans.
        counted: sizes x N: whether an object counts.
        ignored: M x sizes bits of unmatched detections (:func:`outside`), modified in place.

    Returns:
        Bits of thresholds, M x sizes uint16 each: where a detection is right, and where it is ignored.
    """
    right, count = np.zeros_like(ignored), len(crowd)
    close = np.flatnonzero((share >= _LOWEST[0]).any(axis=1))
    if not len(close):
        return right, ignored
    # integers that rank objects by the detection's preference: -1 is none
    ranks = np.argsort(np.argsort(share[close], axis=1, kind="stable"), axis=1, kind="stable")
    preferred = ranks[:, None, None, :] + count * counted[None, :, None, :]
    free = np.ones((len(_ENDS), len(_LOWEST), count), bool)
    for row, ranking in zip(close, preferred, strict=True):
        order = np.where(free & (share[row] >= _LOWEST), ranking, -1)
        best = order.argmax(axis=-1)
        place = order[_SIZE, _THRESHOLD, best]
        taken, real = place >= 0, place >= count
        right[row] = real @ _BITS
        ignored[row] = (ignored[row] & (~taken @ _BITS)) | ((taken & ~real) @ _BITS)
        free[_SIZE, _THRESHOLD, best] &= ~taken | crowd[best]
    return right, ignored


def overlaps_in_order(share: Array) -> tuple[Array, Array]:
    """Return two overlaps per detection: it is right at thresholds above the second, up to the first.

    The first is with the object it overlaps most; the second is the largest of those that earlier detections have with
    the same object as their own best. This follows the matching unless a detection takes its second best object.

    Args:
        share: M x N overlaps of a class's detections, by falling score, with its objects; 0 for objects that do not
            count.
    """
    over, taken = share.max(axis=1, initial=0.0), np.zeros(len(share))
    best = share.argmax(axis=1) if share.shape[1] else np.zeros(len(share), np.int64)
    order = np.argsort(best, kind="stable")
    base = 2.0 * best[order]  # above every overlap with an object before
    largest = np.maximum.accumulate(base + over[order]) - base
    again = np.flatnonzero(np.diff(base) == 0)
    taken[order[again + 1]] = largest[again]
    return over, np.where(over > 0, taken, 0.0)


def match_voc(share: Array, difficult: Array) -> tuple[Array, Array]:
    """Match a class's detections in an image, by falling score, as ``VOCevaldet`` does, at an overlap of 0.5.

    A detection is matched to the object it overlaps most, the first of equal ones: it is right if this object was not
    found before, wrong if it was, and ignored if it is difficult.

    Args:
        share: M x N intersections over union, also for difficult objects.
        difficult: N booleans.

    Returns:
        As :func:`match_coco`; only the first size and the first threshold are used.
    """
    right, ignored = (np.zeros((len(share), len(_ENDS)), np.uint16) for _ in range(2))
    free = np.ones(len(difficult), bool)
    best = share.argmax(axis=1)
    for row in np.flatnonzero(share.max(axis=1) >= VOC_THRESHOLD):
        met = best[row]
        ignored[row, 0] = difficult[met]
        right[row, 0] = free[met] and not difficult[met]
        free[met] = False
    return right, ignored
