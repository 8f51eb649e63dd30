"""Reader and writer of COCO's results format of key points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.datasets.base import Dataset
from utils.metrics.detection.keypoints import similarity, usual_sigmas
from utils.postprocess.image.nms import areas
from utils.postprocess.image.poses import Poses
from utils.tasks.detection.results import BoxResults, are_numbers, read_results


def read_pose_results(file: Path, dataset: Dataset, labels: Sequence[str] | None) -> list[Poses | None]:
    """Read a JSON list of ``{"image_id", "category_id", "keypoints": [x, y, score, ...], "score"}``; see
    :func:`~utils.tasks.detection.results.read_results`."""
    return read_results(file, dataset, labels, _points_of, _answer, "keypoints")


def _points_of(entry: Mapping[str, Any], where: str) -> Array:
    values = entry.get("keypoints")
    if not isinstance(values, list) or not values or len(values) % 3 or not are_numbers(values, len(values)):
        raise DataError(f"{where}: keypoints {values!r:.60} must be x, y and a score of each point")
    return np.array(values, np.float64).reshape(-1, 3)


def _answer(rows: Sequence[tuple[Array, float, int]]) -> Poses:
    parts, scores, classes = zip(*rows, strict=True)
    if len({len(part) for part in parts}) > 1:
        raise DataError("entries of an image have different numbers of keypoints; write as many for each")
    points = np.array(parts)
    boxes = np.concatenate([points[..., :2].min(axis=1), points[..., :2].max(axis=1)], axis=1)
    return Poses(boxes, np.array(scores), np.array(classes, np.int64), points[..., :2], points[..., 2])


def pose_overlaps(one: Poses, other: Poses) -> Array:
    """Return the object keypoint similarities of M and N poses, M x N; the area of an object is that of the larger of
    its box and the smallest box around its points."""
    sigmas = usual_sigmas(max(one.points.shape[1], 1))
    if one.points.shape[1] != other.points.shape[1]:
        return np.zeros((len(one.scores), len(other.scores)))
    sizes = np.maximum(areas(one.boxes), np.ptp(one.points, axis=1).prod(axis=1))
    columns = zip(one.points, one.boxes, sizes.tolist(), strict=True)
    rows = [similarity(other.points, points, box, size, sigmas) for points, box, size in columns]
    return np.array(rows).reshape(len(one.scores), len(other.scores))


class PoseResults(BoxResults):
    """Writer of the points and scores of poses, in the format of ``COCO.loadRes``."""

    def part(self, found: Any, row: int) -> Mapping[str, Any]:
        """Return the points of an image's object."""
        table = np.concatenate([found.points[row], found.sure[row][:, None]], axis=1)
        return {"keypoints": table.ravel().tolist()}
