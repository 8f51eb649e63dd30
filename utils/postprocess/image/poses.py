"""Decoding of key points: rows of YOLO's pose models, heat maps, and SimCC's two classifications per point."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.letterbox import Geometry, to_image

CORNER, CENTRE, ENDS = ALIGNMENTS = ("corner", "centre", "ends")
"""Place of cell i of a heat map of n cells in an input of m pixels, in whole numbers of pixels from the first one.
``corner``: i * m / n, as SimpleBaseline, HRNet and MMPose. ``centre``: (i + 1/2) * m / n - 1/2. ``ends``: i * (m - 1) /
(n - 1), as UDP (Huang et al., 2020)."""

QUARTER, NONE = REFINEMENTS = ("quarter", "none")
"""``quarter``: a quarter of a cell towards the higher neighbour along each axis (Newell et al., 2016)."""

SURE = 0.2
"""Minimum score of points that count for an object's score: SimpleBaseline's."""


class Poses(NamedTuple):
    """Objects with key points in one image, by falling score.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels. scores: N float64. classes: N int64.
        points: N x K x 2 float64, x and y in pixels. sure: N x K float64, the score of each point.
    """

    boxes: Array
    scores: Array
    classes: Array
    points: Array
    sure: Array

    def at(self, places: Array) -> Poses:
        """Return the objects at some places."""
        return Poses(*(column[places] for column in self))

    def suppressed(self, iou: float, limit: int) -> Poses:
        """Return the best objects, at most ``limit``, whose boxes overlap no better one of the class above ``iou``."""
        numbers = np.arange(len(self.scores))
        kept = non_maximum_suppression(Detections(self.boxes, self.scores, numbers), iou, limit, self.classes)
        return self.at(kept.classes)

    def in_image(self, geometry: Geometry) -> Poses:
        """Return the objects in pixels of the image, from pixels of the input; boxes are clipped to it."""
        start, step = (geometry.left, geometry.top), (geometry.across, geometry.down)
        points = (self.points - np.array(start)) / np.array(step)
        return self._replace(boxes=to_image(self.boxes, geometry), points=points)


def empty(points: int) -> Poses:
    """Return no objects with K points."""
    sizes = ((0, 4), (0,), (0,), (0, points, 2), (0, points))
    return Poses(*(np.zeros(size, np.int64 if place == 2 else np.float64) for place, size in enumerate(sizes)))


def poses_of_rows(rows: Array, classes: int, least: float, dims: int = 3) -> Poses:
    """Return the candidates of YOLO's pose output in pixels of the input: the best class of each box, if at least
    ``least``; those with NaN or infinite numbers are dropped.

    Args:
        rows: (4 + C + K * dims) x A: centre, width, height, class scores, then x, y (and a score) of each point.
        classes: C. least: minimum score. dims: numbers per point, 2 or 3.
    """
    scores = rows[4 : 4 + classes].max(axis=0)
    with np.errstate(invalid="ignore"):
        places = np.flatnonzero(scores >= least)
    some = rows[:, places].astype(np.float64)
    half = some[2:4] / 2
    boxes = np.concatenate([some[:2] - half, some[:2] + half]).T
    labels = some[4 : 4 + classes].argmax(axis=0).astype(np.int64)
    return _finite(Poses(boxes, some[4 : 4 + classes].max(axis=0), labels, *_points(some[4 + classes :].T, dims)))


def poses_of_ends(rows: Array, least: float, dims: int = 3) -> Poses:
    """Return the objects of a YOLO export with suppression in the graph, Q x (6 + K * dims): left, top, right, bottom,
    score, class, then x, y (and a score) of each point; see :func:`poses_of_rows`."""
    with np.errstate(invalid="ignore"):
        some = rows[rows[:, 4] >= least].astype(np.float64)
    labels = np.nan_to_num(some[:, 5]).astype(np.int64)
    found = _finite(Poses(some[:, :4], some[:, 4], labels, *_points(some[:, 6:], dims)))
    return found.at(np.argsort(-found.scores, kind="stable"))


def _points(values: Array, dims: int) -> tuple[Array, Array]:
    """Return N x K x 2 points and N x K scores from N x (K * dims) numbers; the scores are 1 if there are none."""
    table = values.reshape(len(values), values.shape[1] // dims, dims)  # of no objects too
    return table[..., :2], table[..., 2] if dims == 3 else np.ones(table.shape[:2])


def _finite(found: Poses) -> Poses:
    usable = np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores) & np.isfinite(found.points).all((1, 2))
    return found.at(np.flatnonzero(usable))


def points_of_maps(maps: Array, size: tuple[int, int], alignment: str, refinement: str) -> tuple[Array, Array]:
    """Return the points of heat maps, N x K x 2 float64, in pixels of the input, and their scores, N x K.

    A point is at the maximum of its map (the first of equal ones), and its score is the maximum. NaN gives NaN.

    Args:
        maps: N x K x h x w. size: height and width of the input. alignment: one of :data:`ALIGNMENTS`.
        refinement: one of :data:`REFINEMENTS`.
    """
    samples, points, height, width = maps.shape
    flat = maps.reshape(samples, points, -1).astype(np.float64)
    best = flat.argmax(axis=2)
    scores = np.take_along_axis(flat, best[..., None], axis=2)[..., 0]
    rows, columns = np.divmod(best, width)
    places = np.stack([columns, rows], axis=-1).astype(np.float64)
    if refinement == QUARTER:
        wide = maps.astype(np.float64)
        one, two = np.ogrid[:samples, :points]
        for axis, (index, count) in enumerate(((columns, width), (rows, height))):
            inside = (index > 0) & (index < count - 1)
            before, after = np.clip(index - 1, 0, count - 1), np.clip(index + 1, 0, count - 1)
            higher, lower = (
                wide[one, two, rows, place] if axis == 0 else wide[one, two, place, columns]
                for place in (after, before)
            )
            with np.errstate(invalid="ignore"):
                places[..., axis] += np.where(inside, 0.25 * np.sign(higher - lower), 0.0)
    cells, pixels = np.array([width, height], np.float64), np.array(size[::-1], np.float64)
    if alignment == ENDS:
        found = places * (pixels - 1) / np.maximum(cells - 1, 1)
    elif alignment == CENTRE:
        found = (places + 0.5) * pixels / cells - 0.5
    else:
        found = places * pixels / cells
    return np.where(np.isnan(scores)[..., None], np.nan, found), scores


def points_of_bins(across: Array, down: Array, size: tuple[int, int]) -> tuple[Array, Array]:
    """Return the points of SimCC's outputs, N x K x 2 float64, in pixels of the input, and their scores, N x K.

    A point is at the maximum of both vectors, divided by the bins per pixel; the smaller one is its score (Li et al.
    2022, "SimCC"; RTMPose).

    Args:
        across, down: N x K x (width * bins) and N x K x (height * bins). size: height and width of the input.
    """
    found, scores = [], []
    for values, length in ((across, size[1]), (down, size[0])):
        wide = values.astype(np.float64)
        found.append(wide.argmax(axis=2) * (length / values.shape[2]))
        scores.append(wide.max(axis=2))
    least = np.minimum(*scores)
    return np.where(np.isnan(least)[..., None], np.nan, np.stack(found, axis=-1)), least


def object_score(sure: Array) -> Array:
    """Return the score of each object, N: the mean over its points above :data:`SURE` (SimpleBaseline); 0 without."""
    counted = sure > SURE
    total: Array = np.where(counted, sure, 0.0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    return total
