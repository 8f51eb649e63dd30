"""Masks of objects: compact masks, their overlaps, and decoding of prototypes and of masks within boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.letterbox import Geometry, to_image


class Mask(NamedTuple):
    """The mask of an object: the part of the image that holds all its pixels.

    Attributes:
        top, left: first row and column of the part. bits: h x w booleans; empty for no pixels.
    """

    top: int
    left: int
    bits: Array

    @property
    def area(self) -> int:
        """Number of pixels."""
        return int(np.count_nonzero(self.bits))

    def whole(self, size: tuple[int, int]) -> Array:
        """Return the mask of an image of height and width ``size``, H x W booleans."""
        found = np.zeros(size, bool)
        found[self.top : self.top + self.bits.shape[0], self.left : self.left + self.bits.shape[1]] = self.bits
        return found


def compact(mask: Array, top: int = 0, left: int = 0) -> Mask:
    """Return the compact form of a mask, H x W booleans, whose first pixel is at a place of the image."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return Mask(top, left, np.zeros((0, 0), bool))
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return Mask(top + int(rows[0]), left + int(columns[0]), part.copy())


def shared(one: Mask, other: Mask) -> int:
    """Return the number of pixels that two masks of an image have in common."""
    top, left = max(one.top, other.top), max(one.left, other.left)
    bottom = min(one.top + one.bits.shape[0], other.top + other.bits.shape[0])
    right = min(one.left + one.bits.shape[1], other.left + other.bits.shape[1])
    if bottom <= top or right <= left:
        return 0
    parts = (m.bits[top - m.top : bottom - m.top, left - m.left : right - m.left] for m in (one, other))
    return int(np.count_nonzero(np.logical_and(*parts)))


def mask_overlaps(found: Sequence[Mask], objects: Sequence[Mask], crowd: Array | None = None) -> Array:
    """Return the intersections over union of M and N masks, M x N float64; for crowds, over the mask's own area."""
    own, theirs = ([mask.area for mask in masks] for masks in (found, objects))
    common = np.array([[shared(one, other) for other in objects] for one in found], np.float64)
    common = common.reshape(len(found), len(objects))
    union = np.array(own, np.float64)[:, None] + np.array(theirs, np.float64)[None] - common
    if crowd is not None:
        union = np.where(crowd[None], np.array(own, np.float64)[:, None], union)
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=common > 0)
    return shares


class Instances(NamedTuple):
    """Objects with masks in one image, by falling score.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels of the image. scores: N float64. classes: N int64.
        masks: N masks. size: height and width of the image.
    """

    boxes: Array
    scores: Array
    classes: Array
    masks: tuple[Mask, ...]
    size: tuple[int, int]


class Candidates(NamedTuple):
    """Boxes in pixels of the input with scores, classes, and the coefficients (or the masks) of each.

    Attributes:
        boxes: N x 4. scores: N. classes: N int64. rest: N rows of anything.
    """

    boxes: Array
    scores: Array
    classes: Array
    rest: Array

    def at(self, places: Array) -> Candidates:
        """Return the candidates at some places."""
        return Candidates(*(column[places] for column in self))


def candidates_of(rows: Array, classes: int, least: float) -> Candidates:
    """Return the pairs of box and class of YOLO's segmentation rows with a score of at least ``least``; those with NaN
    are dropped.

    Args:
        rows: (4 + C + P) x A: centre, width and height in pixels of the input, class scores, P coefficients.
        classes: C. least: minimum score.
    """
    with np.errstate(invalid="ignore"):
        labels, places = np.nonzero(rows[4 : 4 + classes] >= least)
    some = rows[:, places].astype(np.float64)
    half = some[2:4] / 2
    boxes = np.concatenate([some[:2] - half, some[:2] + half]).T
    scores, rest = rows[4 + labels, places].astype(np.float64), some[4 + classes :].T
    usable = np.isfinite(boxes).all(axis=1) & np.isfinite(rest).all(axis=1)
    return Candidates(boxes, scores, labels.astype(np.int64), rest).at(np.flatnonzero(usable))


def suppressed(found: Candidates, iou: float, limit: int) -> Candidates:
    """Return the best candidates, at most ``limit``, whose boxes overlap no better one of their class above ``iou``."""
    numbers = np.arange(len(found.scores))
    kept = non_maximum_suppression(Detections(found.boxes, found.scores, numbers), iou, limit, found.classes)
    return found.at(kept.classes)


def of_prototypes(
    found: Candidates, prototypes: Array, geometry: Geometry, size: tuple[int, int], least: float = 0.0
) -> Instances:
    """Return objects whose masks are combinations of prototypes (YOLACT: Bolya et al., 2019; YOLO's segmentation).

    The logits of a mask are the coefficients times the prototypes, resized to the image (bilinear, without corners
    aligned); a pixel within the box belongs to the object if its logit is above ``least``.

    Args:
        found: candidates, with P coefficients each. prototypes: P x h x w. geometry: placement of the image.
        size: height and width of the input in pixels. least: logit of the threshold.
    """
    boxes = to_image(found.boxes, geometry)
    flat = prototypes.reshape(len(prototypes), -1).astype(np.float64)
    logits = (found.rest @ flat).reshape(len(boxes), *prototypes.shape[1:])
    masks = []
    for box, values in zip(boxes, logits, strict=True):
        left, top, right, bottom = (int(np.ceil(edge)) for edge in box)
        across = _places(np.arange(left, right), geometry.across, geometry.left, values.shape[1] / size[1])
        down = _places(np.arange(top, bottom), geometry.down, geometry.top, values.shape[0] / size[0])
        masks.append(compact(_sampled(values, down, across) > least, top, left))
    return Instances(boxes, found.scores, found.classes, tuple(masks), (geometry.height, geometry.width))


def of_box_masks(found: Candidates, geometry: Geometry, size: tuple[int, int], least: float = 0.5) -> Instances:
    """Return objects whose masks are probabilities: of the whole input, or of the box (Mask R-CNN: He et al., 2017).

    Masks of the input's size are of the input, others of their box. A mask is resized to the image (bilinear), and a
    pixel within the box belongs to the object if its probability is above ``least``.

    Args:
        found: candidates, with a mask m x n each. geometry, size: as for :func:`of_prototypes`.
    """
    boxes, masks = to_image(found.boxes, geometry), []
    height, width = found.rest.shape[1:]
    of_input = (height, width) == size
    for box, values in zip(boxes, found.rest.astype(np.float64), strict=True):
        left, top, right, bottom = (int(edge) for edge in (*np.floor(box[:2]), *np.ceil(box[2:])))
        columns, rows = np.arange(left, right), np.arange(top, bottom)
        if of_input:
            across = _places(columns, geometry.across, geometry.left, width / size[1])
            down = _places(rows, geometry.down, geometry.top, height / size[0])
        else:
            across = (columns + 0.5 - box[0]) * width / max(box[2] - box[0], 1e-9) - 0.5
            down = (rows + 0.5 - box[1]) * height / max(box[3] - box[1], 1e-9) - 0.5
        masks.append(compact(_sampled(values, down, across) > least, top, left))
    return Instances(boxes, found.scores, found.classes, tuple(masks), (geometry.height, geometry.width))


def _places(pixels: Array, step: float, start: float, factor: float) -> Array:
    """Return the places of an image's pixels on a map: the centres, in whole numbers of the map's pixels."""
    found: Array = ((pixels + 0.5) * step + start) * factor - 0.5
    return found


def _sampled(values: Array, down: Array, across: Array) -> Array:
    """Return a map at rows and columns, bilinear, with the border repeated; len(down) x len(across)."""
    if not len(down) or not len(across):
        return np.zeros((len(down), len(across)))
    wide = values
    for axis, places in enumerate((down, across)):
        length = wide.shape[axis]
        inside = np.clip(places, 0, length - 1)
        before = np.minimum(np.floor(inside).astype(np.int64), max(length - 2, 0))
        share = (inside - before).reshape((-1, 1) if axis == 0 else (1, -1))
        after = np.minimum(before + 1, length - 1)
        wide = np.take(wide, before, axis) * (1 - share) + np.take(wide, after, axis) * share
    return wide


def kept_masks(found: Instances) -> Instances:
    """Return the objects whose masks have a pixel."""
    places = [place for place, mask in enumerate(found.masks) if mask.bits.size]
    boxes, scores, classes = (column[places] for column in (found.boxes, found.scores, found.classes))
    return Instances(boxes, scores, classes, tuple(found.masks[place] for place in places), found.size)
