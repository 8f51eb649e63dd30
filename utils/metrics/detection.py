"""Mean average precision of object detection, as COCO defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, DataError, InputError
from utils.metrics.base import RecordMetric, Records
from utils.metrics.class_names import places
from utils.postprocess.image.nms import areas

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

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Match one batch.

        Args:
            predictions: per picture an object with ``boxes`` (N x 4: left, top, right, bottom), ``scores`` (N) and
                ``classes`` (N whole numbers), such as :class:`~utils.postprocess.image.nms.Detections`.
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
        return _mean(self._precisions(records, weights, slice(None)))

    def secondary(self) -> Mapping[str, float]:
        """Return ``mAP50``, the mean average precision at an intersection over union of 0.50 alone."""
        kept = self._all()
        return {"mAP50": _mean(self._precisions(kept, np.ones(len(kept)), slice(1)))}

    def _precisions(self, records: Array, weights: Array, thresholds: slice) -> Array:
        """Return the average precisions of the classes with objects, one row each, at some thresholds."""
        is_object = np.isnan(records["score"])
        if not is_object.any():
            raise DataError(f"{self.name}: the data set holds no object to be found; check its annotations")
        labels = records["label"]
        objects = np.bincount(labels[is_object], weights[is_object])
        # NaN sorts last: the objects of a class stand behind its detections
        order = np.lexsort((-records["score"], labels))
        order = order[~is_object[order]]
        ordered, counts = records[order], weights[order]
        ends = np.searchsorted(ordered["label"], np.arange(len(objects) + 1))
        rows = [
            _average(ordered[start:end], counts[start:end], total, thresholds)
            for start, end, total in zip(ends, ends[1:], objects, strict=False)
            if total > 0
        ]
        return np.array(rows)

    def _picture(self, prediction: Any, target: Any) -> Iterator[Array]:
        """Yield the records of one picture: the classes that it holds, one by one, then all other detections."""
        boxes, scores, classes = _checked(prediction)
        labels = self._classes(target)
        order = np.lexsort((-scores, classes))
        order = order[_best(classes[order])]
        present = np.unique(labels)
        for label in present:
            mine, real = order[classes[order] == label], labels == label
            objects, crowd = np.asarray(target.boxes, np.float64)[real], np.asarray(target.crowd, bool)[real]
            right, ignored = _matched(_shares(boxes[mine], objects, crowd), crowd)
            yield _rows(np.full(np.count_nonzero(~crowd), label), np.nan)
            yield _rows(classes[mine], scores[mine], right @ _BITS, ignored @ _BITS)
        rest = order[~np.isin(classes[order], present)]
        yield _rows(classes[rest], scores[rest])

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


def _best(classes: Array) -> Array:
    """Return the places of the first detections of each class, where the classes are sorted."""
    starts = np.searchsorted(classes, classes, side="left")
    return np.flatnonzero(np.arange(len(classes)) - starts < MOST)


def _rows(labels: Array, scores: Any, right: Any = 0, ignored: Any = 0) -> Array:
    """Return records of :data:`RECORD`."""
    rows = np.empty(len(labels), RECORD)
    rows["label"], rows["score"], rows["right"], rows["ignored"] = labels, scores, right, ignored
    return rows


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


def _average(records: Array, weights: Array, total: float, thresholds: slice) -> list[float]:
    """Return the average precisions of one class at some thresholds; the records are sorted, the surest first."""
    if not len(records):
        return [0.0] * len(_BITS[thresholds])
    last = np.flatnonzero(np.append(np.diff(records["score"]) != 0, True))
    bits = _BITS[thresholds, None]
    right = np.cumsum(((records["right"] & bits) > 0) * weights, axis=1)[:, last]
    wrong = np.cumsum((((records["right"] | records["ignored"]) & bits) == 0) * weights, axis=1)[:, last]
    counted = right + wrong
    precision = np.divide(right, counted, out=np.zeros_like(right), where=counted > 0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return [
        float(np.append(row, 0.0)[np.searchsorted(recall, RECALLS, side="left")].mean())
        for row, recall in zip(best, right / total, strict=True)
    ]


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")
