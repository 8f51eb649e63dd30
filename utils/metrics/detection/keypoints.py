"""Average precision of key points by COCO's object keypoint similarity (OKS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.detection.matching import SIZES
from utils.metrics.detection.metric import MeanAveragePrecision, areas_of, mean_of

COCO_SIGMAS = (
    *(0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072),
    *(0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089),
)
"""Of COCO's 17 points of a person (cocodataset.org, "Keypoint evaluation"), as shares of the object's scale."""

MOST = 20
"""Maximum number of detections per image and class, the best ones: COCO's."""


def usual_sigmas(count: int) -> tuple[float, ...]:
    """Return COCO's deviations for 17 points; else 1 / count for each, as Ultralytics' evaluation."""
    return COCO_SIGMAS if count == len(COCO_SIGMAS) else (1 / count,) * count


class KeypointAveragePrecision(MeanAveragePrecision):
    """The mean over classes, and over ten thresholds of OKS from 0.50 to 0.95, of the average precision.

    The rules and figures of ``COCOeval`` for ``keypoints`` (Ronchi and Perona, 2017; cocodataset.org, "Keypoint
    evaluation"). The similarity of pose and object is the mean of exp(-d^2 / (2 s^2 k^2)) over its labelled points:
    d the distance, s^2 the object's annotated area, k = 2 sigma. An object without labelled points is not evaluated:
    the pose that is nearest to its doubled box is ignored. The best 20 poses per image and class are evaluated; the
    area of a pose is that of the smallest box around its points.

    Args:
        labels, categories, common: as of :class:`.MeanAveragePrecision`.
        sigmas: the deviation of each point, in shares of the scale; ``None``: :func:`usual_sigmas`.

    Raises:
        ConfigError: a deviation is not above 0.
    """

    most = MOST

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        *,
        categories: Sequence[str] = (),
        sigmas: Sequence[float] | None = None,
        common: bool = False,
    ) -> None:
        super().__init__(labels, categories=categories, common=common)
        if sigmas is not None and not all(0 < one < 10 for one in sigmas):
            raise ConfigError(f"sigmas {list(sigmas)} of key points must be above 0, such as 0.05")
        self.name, self.sigmas = "OKS_AP", None if sigmas is None else tuple(sigmas)

    def secondary(self) -> Mapping[str, float]:
        """Return COCO's nine further figures of key points; those of sizes without objects are omitted.

        ``AP50`` and ``AP75`` are at one threshold, ``AP_medium`` and ``AP_large`` for objects of 32 x 32 to 96 x 96 and
        of more pixels; ``AR``, ``AR50``, ``AR75``, ``AR_medium`` and ``AR_large`` are recalls.
        """
        ranked = self._ranked()
        ones, whole = np.ones(len(ranked.records)), ranked.of_size()
        rows, recalls = whole.precisions(ones, self._read), whole.recalls(ones, self.most)
        sizes = [size for size in list(SIZES)[2:] if len(ranked.of_size(size).classes)]
        found = {f"AP{level}": mean_of(rows[:, place]) for level, place in ((50, 0), (75, 5))}
        found |= {f"AP_{one}": mean_of(ranked.of_size(one).precisions(ones, self._read)) for one in sizes}
        found |= {"AR": mean_of(recalls), "AR50": mean_of(recalls[:, 0]), "AR75": mean_of(recalls[:, 5])}
        return found | {f"AR_{one}": mean_of(ranked.of_size(one).recalls(ones, self.most)) for one in sizes}

    def _evaluated(self, target: Any) -> Array:
        """Return which objects are no crowds and have a labelled point."""
        labelled: Array = np.asarray(~np.isnan(_points_of(target)[..., 0]).all(axis=1))
        counted: Array = super()._evaluated(target) & labelled
        return counted

    def _overlaps(self, prediction: Any, order: Array, target: Any, known: Array) -> tuple[Array, Array]:
        """Return the similarities of some poses and some objects, and the areas of the poses."""
        points = np.asarray(prediction.points, np.float64)
        wanted = _points_of(target)
        if points.shape[0] != len(prediction.scores) or points.ndim != 3 or points.shape[2] != 2:
            raise InputError(f"poses have points of shape {points.shape}; expected N x K x 2")
        if target.points is not None and wanted.shape[1:] != points.shape[1:]:
            raise InputError(
                f"the model finds {points.shape[1]} key points per object, the data set has {wanted.shape[1]}; use a "
                "data set of the same points"
            )
        sigmas = usual_sigmas(points.shape[1]) if self.sigmas is None else self.sigmas
        if len(sigmas) != points.shape[1]:
            raise InputError(f"{len(sigmas)} sigmas for {points.shape[1]} key points; give one for each")
        points = points[order]
        sides = np.ptp(points, axis=1) if points.shape[1] else np.zeros((len(points), 2))
        if target.points is None:
            wanted = np.full((len(wanted), *points.shape[1:]), np.nan)
        boxes = np.asarray(target.boxes, np.float64)[known]
        columns = zip(wanted[known], boxes, areas_of(target)[known], strict=True)
        share = [similarity(points, one, box, float(area), sigmas) for one, box, area in columns]
        return np.array(share).reshape(len(boxes), len(points)).T, sides.prod(axis=1)


def similarity(points: Array, wanted: Array, box: Array, area: float, sigmas: Sequence[float]) -> Array:
    """Return the object keypoint similarity of M poses with an object, M float64, 0 to 1.

    Args:
        points: M x K x 2, x and y in pixels. wanted: K x 2, NaN for points that are not labelled.
        box: left, top, right, bottom of the object; used if none of its points is labelled: then the distance of a
            point is that to the box of three times its size around it. area: of the object in square pixels.
        sigmas: K deviations in shares of the root of the area.
    """
    known = ~np.isnan(wanted[:, 0])
    variances = (2 * np.asarray(sigmas, np.float64)) ** 2
    if known.any():
        away, variances = points[:, known] - wanted[known], variances[known]
    else:
        size = box[2:] - box[:2]
        start, end = box[:2] - size, box[:2] + 2 * size
        away = np.maximum(0, start - points) + np.maximum(0, points - end)
    with np.errstate(over="ignore"):
        errors = (away**2).sum(axis=2) / variances / (area + np.spacing(1)) / 2
    shares: Array = np.exp(-errors).sum(axis=1) / errors.shape[1]
    return shares


def _points_of(target: Any) -> Array:
    """Return the points of an image's objects, N x K x 2; K is 1 and all are NaN if the data set has none."""
    points = getattr(target, "points", None)
    return np.full((len(target.boxes), 1, 2), np.nan) if points is None else np.asarray(points, np.float64)
