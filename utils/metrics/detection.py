"""Mean average precision of object detection, as COCO defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.base import Array, DataError, InputError
from utils.metrics._kept import RecordMetric
from utils.metrics.base import Records
from utils.metrics.class_names import places
from utils.postprocess.nms import areas

IOU_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Intersections over union from which on a detection may count as right: 0.50, 0.55, ..., 0.95."""

RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which precision is read off."""

MOST = 100
"""Detections per picture and class that count, the best ones."""

RECORD = np.dtype([("label", np.int32), ("score", np.float64), ("right", np.uint16), ("ignored", np.uint16)])
"""An object to be found (score NaN), or a detection: bit ``i`` of ``right`` says that it is right at threshold ``i``,
bit ``i`` of ``ignored`` that it is neither right nor wrong there. 16 bytes."""

_BITS = 1 << np.arange(len(IOU_THRESHOLDS), dtype=np.uint16)


class MeanAveragePrecision(RecordMetric):
    """COCO's mAP@[0.50:0.95]: average precision over 101 recalls, classes and ten thresholds, as pycocotools has it.

    The rules are those of ``COCOeval`` (Lin et al. 2014; cocodataset.org, "Detection evaluation") for all areas. In a
    picture and class the best 100 detections are taken from the surest on; each is matched to the free object it
    overlaps most, where that is at least the threshold. Precision at a recall is the best one reached at that recall or
    a higher one, 0 where it is not reached. A class without objects does not count. Crowds may be found any number of
    times and count for nothing.

    Detections of one class with equal scores are counted together, so that the order of the pictures says nothing;
    pycocotools takes them in that order, and agrees where scores differ.

    Args:
        labels: the model's class names, in the order of its classes; the targets' categories are found among them by
            name. ``None``: categories and classes have the same numbers.
    """

    name = "mAP"

    def __init__(self, labels: Sequence[str] | None = None) -> None:
        self.labels = None if labels is None else tuple(labels)
        self._places: dict[tuple[str, ...], Array] = {}

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None = None) -> Records:
        """Match one batch.

        Args:
            predictions: per picture an object with ``boxes`` (N x 4: left, top, right, bottom), ``scores`` (N) and
                ``classes`` (N whole numbers), such as :class:`~utils.postprocess.nms.Detections`.
            targets: per picture an object as :class:`~utils.datasets.boxes.Objects`, in the same pixels.
            contexts: not used.

        Returns:
            A record of :data:`RECORD` per object and per detection, with the positions of their pictures.

        Raises:
            InputError: not as many predictions as targets, or predictions that do not belong together.
            DataError: a category that is not a class of the model.
        """
        if len(predictions) != len(targets):
            raise InputError(f"{len(predictions)} predictions came with {len(targets)} targets; pass one for each")
        found = [
            np.concatenate([np.empty(0, RECORD), *self._picture(prediction, target)])
            for prediction, target in zip(predictions, targets, strict=True)
        ]
        owners = np.repeat(np.arange(len(found), dtype=np.int64), [len(part) for part in found])
        return Records(np.concatenate([np.empty(0, RECORD), *found]), owners)

    def value(self, records: Array, weights: Array) -> float:
        """Return the mAP, 0 to 1; NaN where no object has a weight.

        With whole numbers as weights it is that of a data set which holds each picture so many times.

        Raises:
            DataError: there is no object among the records.
        """
        return _mean(self._precisions(records, weights, range(len(IOU_THRESHOLDS))))

    def secondary(self) -> Mapping[str, float]:
        """Return ``mAP50``, the mean average precision at an intersection over union of 0.50 alone."""
        kept = self._all()
        return {"mAP50": _mean(self._precisions(kept, np.ones(len(kept)), range(1)))}

    def _precisions(self, records: Array, weights: Array, thresholds: range) -> list[float]:
        """Return the average precision of every class with objects at every threshold."""
        is_object = np.isnan(records["score"])
        if not is_object.any():
            raise DataError(f"{self.name}: the data set holds no object to be found; check its annotations")
        found = []
        for label in np.unique(records["label"][is_object]):
            mine = records["label"] == label
            total = float(weights[mine & is_object].sum())
            if total > 0:
                chosen = mine & ~is_object
                order = np.argsort(-records["score"][chosen], kind="stable")
                ordered, counts = records[chosen][order], weights[chosen][order]
                found += [_average(ordered, counts, total, threshold) for threshold in thresholds]
        return found

    def _picture(self, prediction: Any, target: Any) -> Iterator[Array]:
        """Yield the records of one picture, class by class."""
        boxes, scores, classes = _checked(prediction)
        labels = self._classes(target)
        for label in np.unique(np.concatenate([labels, classes])):
            mine = np.flatnonzero(classes == label)
            mine = mine[np.argsort(-scores[mine], kind="stable")][:MOST]
            real = labels == label
            objects, crowd = np.asarray(target.boxes, np.float64)[real], np.asarray(target.crowd, bool)[real]
            right, ignored = _matched(_shares(boxes[mine], objects, crowd), crowd)
            wanted = np.zeros(np.count_nonzero(~crowd), RECORD)
            wanted["label"], wanted["score"] = label, np.nan
            yield wanted
            found = np.zeros(len(mine), RECORD)
            found["label"], found["score"] = label, scores[mine]
            found["right"], found["ignored"] = right @ _BITS, ignored @ _BITS
            yield found

    def _classes(self, target: Any) -> Array:
        """Return the model's classes of a picture's objects."""
        names = tuple(target.categories)
        if names not in self._places:
            self._places[names] = places(names, self.labels)
        return self._places[names][np.asarray(target.classes, np.int64)]


def _checked(prediction: Any) -> tuple[Array, Array, Array]:
    boxes, scores = np.asarray(prediction.boxes, np.float64), np.asarray(prediction.scores, np.float64)
    classes = np.asarray(prediction.classes)
    if scores.ndim != 1 or boxes.shape != (len(scores), 4) or classes.shape != scores.shape:
        raise InputError(
            f"a prediction has boxes of shape {boxes.shape}, scores of {scores.shape} and classes of {classes.shape}; "
            "mAP needs N x 4, N and N"
        )
    if classes.size and classes.dtype.kind not in "iu":
        raise InputError(f"a prediction's classes have dtype {classes.dtype}; pass classes.astype(np.int64)")
    if np.isnan(scores).any():
        raise InputError("a prediction has a score that is NaN; drop such detections")
    return boxes, scores, classes.astype(np.int64)


def _shares(found: Array, objects: Array, crowd: Array) -> Array:
    """Return the intersections over union, M x N; over the detection's area alone where the object is a crowd."""
    sides = np.minimum(found[:, None, 2:], objects[None, :, 2:]) - np.maximum(found[:, None, :2], objects[None, :, :2])
    common = np.clip(sides, 0.0, None).prod(axis=-1)
    own, theirs = areas(found)[:, None], areas(objects)[None]
    union = np.where(crowd[None], own, own + theirs - common)
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def _matched(shares: Array, crowd: Array) -> tuple[Array, Array]:
    """Match detections, the surest first, to objects; return M x 10: whether each is right, and whether it is ignored.

    A detection takes the free object it overlaps most, the last of equals, and a crowd only where no object is left.
    """
    lowest = np.minimum(IOU_THRESHOLDS, 1 - 1e-10)[:, None]
    right = np.zeros((len(shares), len(lowest)), bool)
    ignored = np.zeros_like(right)
    free = np.broadcast_to(~crowd, (len(lowest), len(crowd))).copy()
    every = np.arange(len(lowest))
    for row in np.flatnonzero((shares >= lowest[0]).any(axis=1)):
        near = shares[row] >= lowest
        able = near & free
        best = len(crowd) - 1 - np.argmax(np.where(able, shares[row], -1.0)[:, ::-1], axis=1)
        right[row] = able.any(axis=1)
        free[every, best] &= ~right[row]
        ignored[row] = ~right[row] & (near & crowd).any(axis=1)
    return right, ignored


def _average(records: Array, weights: Array, total: float, threshold: int) -> float:
    """Return the average precision of one class at one threshold; the records are sorted, the surest first."""
    bit = _BITS[threshold]
    last = np.flatnonzero(np.append(np.diff(records["score"]) != 0, True)) if len(records) else np.empty(0, np.intp)
    right = np.cumsum(np.where(records["right"] & bit, weights, 0.0))[last]
    wrong = np.cumsum(np.where((records["right"] | records["ignored"]) & bit, 0.0, weights))[last]
    recall, counted = right / total, right + wrong
    precision = np.divide(right, counted, out=np.zeros_like(right), where=counted > 0)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(recall, RECALLS, side="left")
    return float(np.append(best, 0.0)[reached].mean())


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
