"""Mean average precision of object detection, as defined by COCO and by Pascal VOC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric, Records
from utils.metrics.class_names import found_places, unknown
from utils.metrics.detection.average_precision import (
    RECORD,
    SPREAD,
    Curves,
    Ranked,
    Read,
    around_recalls,
    at_recalls,
    whole_area,
)
from utils.metrics.detection.matching import SIZES, match_coco, match_voc, of_size, outside, overlaps_in_order, shares
from utils.postprocess.image.nms import areas

MOST = 100
"""Maximum number of detections per image and class in COCO's rules, the best ones."""

RULES: Mapping[str, tuple[str, Read]] = {
    "coco": ("mAP", at_recalls(101)),
    "voc2007": ("voc2007_mAP", at_recalls(11)),
    "voc2012": ("voc2012_mAP", whole_area),
}
"""Rules: the metric's name, and the function from a curve to an average precision."""

_THRESHOLDS = {"mAP50": 0, "mAP75": 5}
"""Figures at a single threshold: its index in :data:`~utils.metrics.detection.matching.IOU_THRESHOLDS`."""


class MeanAveragePrecision(RecordMetric):
    """The mean over classes of the average precision.

    ``coco``: mAP@[0.50:0.95], the rules and the twelve figures of ``COCOeval`` (Lin et al. 2014; cocodataset.org,
    "Detection evaluation"). The best 100 detections per image and class are matched by falling score, each to the free
    object it overlaps most, if the overlap is at least the threshold. Precision at each of 101 recalls is the maximum
    at this or a higher recall, 0 if it is not reached; the mean is over classes and ten thresholds. Classes without
    objects do not count. Detections of crowds are ignored.

    ``voc2007``, ``voc2012``: the rules of the development kits (Everingham et al. 2010) at an overlap of 0.5, with 11
    recalls, and with the whole area under the curve. Crowds are VOC's difficult objects.

    Equal scores are ordered by the images' numbers (``Objects.number``), within an image by the detections' order, as
    in COCO's and VOC's own evaluations, so results are equal if images are numbered as there; without numbers, wrong
    detections come first among equal scores, which gives the lowest possible value.

    Args:
        labels: the model's class names, in the order of its classes; the targets' categories are found among them by
            name. ``None``: categories and classes have the same numbers.
        categories: names of the classes if ``labels`` is ``None``.
        rules: one of :data:`RULES`.
        common: ignore objects of categories that are not among the labels.

    Raises:
        ConfigError: unknown rules.
    """

    name = "mAP"
    dtype = RECORD
    """Of the records; subclasses may add fields."""

    most = MOST
    """Maximum number of detections per image and class in COCO's rules."""

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        *,
        categories: Sequence[str] = (),
        rules: str = "coco",
        common: bool = False,
    ) -> None:
        if rules not in RULES:
            raise ConfigError(f"unknown rules {rules!r} of the detection metric; use one of {', '.join(RULES)}")
        self.labels = None if labels is None else tuple(labels)
        self.categories, self.rules, self.common = tuple(categories), rules, common
        self.name, self._read = RULES[rules][0], RULES[rules][1]
        self._places: dict[tuple[str, ...], Array] = {}
        self._kept: tuple[Array, Ranked] | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "_kept": None}
        del state["_read"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._read = RULES[self.rules][1]

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Match one batch.

        Args:
            predictions: per image an object with ``boxes`` (N x 4: left, top, right, bottom), ``scores`` (N) and
                ``classes`` (N integers), such as :class:`~utils.postprocess.image.nms.Detections`.
            targets: per image a :class:`~utils.datasets.image.objects.Objects`, in the same pixels.

        Returns:
            A record of :data:`~utils.metrics.detection.average_precision.RECORD` per object that counts and per
            detection, with the indices of their images.

        Raises:
            InputError: predictions and targets differ in number, or a prediction's arrays do not match.
            DataError: a category is not a class of the model.
        """
        if len(predictions) != len(targets):
            raise InputError(f"{len(predictions)} predictions for {len(targets)} targets; pass one for each")
        found = [self._image(prediction, target) for prediction, target in zip(predictions, targets, strict=True)]
        owners = np.repeat(np.arange(len(found), dtype=np.int64), [len(part) for part in found])
        return Records(np.concatenate([np.empty(0, self.dtype), *found]), owners)

    def value(self, records: Array, weights: Array) -> float:
        """Return the mean average precision, 0 to 1; NaN if all objects have weight 0.

        Integer weights give the value of a data set that repeats each image this many times. Raises DataError if the
        records have no object.
        """
        return self.weighing(records)(weights)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted and split by threshold once."""
        return self._weighed(self._curves(Ranked(records)), self._read)

    def smoothed(self, records: Array) -> Callable[[Array], float]:
        """Return the value with spread thresholds of overlap, and for COCO's rules the whole area under the curve.

        A deviation of 0.001 takes a box across one of ten thresholds once in 50 times, and the average precision then
        changes by a whole object, or by a whole one of the 101 recalls. Over a range of thresholds that is small beside
        the spread of overlaps, it changes by the same in the mean, but in proportion to the deviation.
        """
        read = around_recalls(101) if self.rules == "coco" else self._read
        return self._weighed(self._curves(Ranked(records, SPREAD)), read)

    def compute(self) -> float:
        """Return :meth:`value` of all records, each counted once, independent of their order."""
        ranked = self._ranked()
        return self._weighed(self._curves(ranked), self._read)(np.ones(len(ranked.records)))

    def secondary(self) -> Mapping[str, float]:
        """Return COCO's eleven further figures; empty for VOC's rules.

        ``mAP50`` and ``mAP75`` are at one overlap; ``mAP_small``, ``mAP_medium`` and ``mAP_large`` are for objects of
        up to 32 x 32, up to 96 x 96, and more pixels; ``AR1``, ``AR10`` and ``AR100`` are the mean recall with this
        number of detections per image and class, ``AR_small`` etc. with 100. Sizes without objects are omitted.
        """
        if self.rules != "coco":
            return {}
        ranked = self._ranked()
        ones = np.ones(len(ranked.records))
        whole = ranked.of_size()
        rows = whole.precisions(ones, self._read)
        found = {name: mean_of(rows[:, place]) for name, place in _THRESHOLDS.items()}
        sizes = [size for size in list(SIZES)[1:] if len(ranked.of_size(size).classes)]
        found |= {f"mAP_{size}": mean_of(ranked.of_size(size).precisions(ones, self._read)) for size in sizes}
        found |= {f"AR{most}": mean_of(whole.recalls(ones, most)) for most in (1, 10, MOST)}
        return found | {f"AR_{size}": mean_of(ranked.of_size(size).recalls(ones, MOST)) for size in sizes}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return for each class with objects their number, and its average precisions."""
        ranked = self._ranked()
        curves, ones = ranked.of_size(), np.ones(len(ranked.records))
        rows, counts = curves.precisions(ones, self._read), curves.totals(ones)
        names = self.categories if self.labels is None else self.labels
        found: dict[str, dict[str, float]] = {}
        for label, count, row in zip(curves.classes.tolist(), counts.tolist(), rows, strict=True):
            name = names[label] if label < len(names) else str(label)
            name = f"{name} ({label})" if name in found else name
            figures = {"AP": mean_of(row), "AP50": float(row[0]), "AP75": float(row[5])}
            found[name] = {"objects": int(count), **(figures if self.rules == "coco" else {"AP": float(row[0])})}
        return found

    def _ranked(self) -> Ranked:
        """Return all records, sorted once until new ones are added."""
        values = self._all()
        if self._kept is None or self._kept[0] is not values:
            self._kept = values, Ranked(values)
        return self._kept[1]

    def _curves(self, ranked: Ranked) -> Curves:
        if not len(ranked.objects):
            raise DataError(f"{self.name}: the data set has no object to detect; check its annotations")
        return ranked.of_size()

    def _weighed(self, curves: Curves, read: Read) -> Callable[[Array], float]:
        def weighed(weights: Array) -> float:
            rows = curves.precisions(weights, read)
            return mean_of(rows if self.rules == "coco" else rows[:, 0])

        return weighed

    def _image(self, prediction: Any, target: Any) -> Array:
        """Return the records of one image: its detections, then its objects."""
        _, scores, classes = _checked(prediction)
        labels = self._classes(target)
        known = labels >= 0
        labels, crowd = labels[known], np.asarray(target.crowd, bool)[known]
        counted = of_size(areas_of(target)[known]) & self._evaluated(target)[known]
        order = np.lexsort((-scores, classes))
        ranks = _ranks(classes[order])
        if self.rules == "coco":
            order, ranks = order[ranks < self.most], ranks[ranks < self.most]
        scores, classes = scores[order], classes[order]
        share, size = self._overlaps(prediction, order, target, known)
        rows = np.zeros(len(order) + np.count_nonzero(~crowd), RECORD)
        rows["image"], rows["label"] = target.number, np.append(classes, labels[~crowd])
        rows["score"], rows["rank"] = np.nan, 255
        found = rows[: len(order)]
        found["score"], found["rank"], found["ignored"] = scores, np.minimum(ranks, 255), outside(size)
        rows["ignored"][len(order) :] = ~counted.T[~crowd]
        coco = self.rules == "coco"
        for label in np.unique(labels).tolist():
            start, end = classes.searchsorted((label, label + 1)).tolist()
            if start < end:
                real, mine = np.flatnonzero(labels == label), slice(start, end)
                near, many = share[mine, real], crowd[real]
                matched = (
                    match_coco(near, many, counted[:, real], found["ignored"][mine]) if coco else match_voc(near, many)
                )
                found["right"][mine], found["ignored"][mine] = matched
                found["overlap"][mine], found["taken"][mine] = overlaps_in_order(np.where(many, 0.0, near))
        return rows

    def _evaluated(self, target: Any) -> Array:
        """Return which objects of an image have to be found, N booleans."""
        return ~np.asarray(target.crowd, bool)

    def _overlaps(self, prediction: Any, order: Array, target: Any, known: Array) -> tuple[Array, Array]:
        """Return the overlaps of some detections with some objects, M x N, 0 to 1, and the detections' areas, M.

        Args:
            prediction, target: of an image. order: M indices of detections. known: mask of N objects.
        """
        boxes = np.asarray(prediction.boxes, np.float64)[order]
        crowd = np.asarray(target.crowd, bool)[known] & (self.rules == "coco")
        return shares(boxes, np.asarray(target.boxes, np.float64)[known], crowd), areas(boxes)

    def _classes(self, target: Any) -> Array:
        """Return the model's classes of an image's objects; -1 for ignored ones."""
        names, classes = tuple(target.categories), np.asarray(target.classes, np.int64)
        if not names:  # only numbered
            return classes
        if names not in self._places:
            self._places[names] = found_places(names, self.labels)
        places: Array = self._places[names][classes]
        if not self.common and (places < 0).any():
            raise unknown([names[label] for label in np.unique(classes[places < 0])], self.labels or ())
        return places


def areas_of(target: Any) -> Array:
    """Return the annotated areas of an image's objects; else those of their boxes."""
    stated = getattr(target, "areas", None)
    if stated is not None:
        return np.asarray(stated, np.float64)
    boxes = np.asarray(target.boxes, np.float64)
    area: Array = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return area


def _checked(prediction: Any) -> tuple[Array, Array, Array]:
    boxes, scores = np.asarray(prediction.boxes, np.float64), np.asarray(prediction.scores, np.float64)
    classes = np.asarray(prediction.classes)
    if scores.ndim != 1 or boxes.shape != (len(scores), 4) or classes.shape != scores.shape:
        raise InputError(
            f"a prediction has boxes of shape {boxes.shape}, scores of {scores.shape} and classes of {classes.shape}; "
            "expected N x 4, N and N"
        )
    if classes.size and classes.dtype.kind not in "iu":
        raise InputError(f"a prediction's classes have dtype {classes.dtype}; pass classes.astype(np.int64)")
    if np.isnan(scores).any():
        raise InputError("a prediction has a NaN score; remove such detections")
    return boxes, scores, classes.astype(np.int64)


def _ranks(classes: Array) -> Array:
    """Return the position of each detection in its class; the classes are sorted."""
    ranks: Array = np.arange(len(classes)) - np.searchsorted(classes, classes, side="left")
    return ranks


def mean_of(values: Array) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    real = values[~np.isnan(values)]
    return float(real.mean()) if real.size else float("nan")
