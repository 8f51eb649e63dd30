"""Precision and recall of matched detections: sorted once, then weighted any number of times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from engine import Array
from utils.metrics.detection.matching import IOU_THRESHOLDS, SIZES

RECORD = np.dtype(
    [
        *(("label", np.int32), ("image", np.int32), ("score", np.float64), ("rank", np.uint8)),
        *(("right", np.uint16, (len(SIZES),)), ("ignored", np.uint16, (len(SIZES),))),
    ]
)
"""A detection, or an object to be found (score NaN). 33 bytes.

``rank`` is a detection's position by falling score in its class and image. Per size of :data:`.SIZES`, bit ``i`` of
``right`` means that it is right at threshold ``i``, bit ``i`` of ``ignored`` that it is neither right nor wrong. An
object that does not count for a size is ``ignored`` there.
"""

Read = Callable[[Array, Array], float]
"""From increasing recalls, and the maximum precision at each or a higher one, to the average precision of a class."""


def at_recalls(count: int) -> Read:
    """Return the mean of precisions at ``count`` recalls from 0 to 1; 0 for recalls that are not reached."""
    levels = np.linspace(0.0, 1.0, count)

    def read(recall: Array, precision: Array) -> float:
        places = recall.searchsorted(levels)
        return float(precision[places[places < len(recall)]].sum() / count)

    return read


def whole_area(recall: Array, precision: Array) -> float:
    """Return the area under the curve, at every recall that is reached."""
    return float(np.diff(recall, prepend=0.0) @ precision)


class Ranked:
    """Records sorted by class, falling score, image and rank.

    Args:
        records: an array of :data:`RECORD`, in any order.
    """

    def __init__(self, records: Array) -> None:
        is_object = np.isnan(records["score"])
        self.objects = np.flatnonzero(is_object)
        found = np.flatnonzero(~is_object)
        some = records[found]
        keys = (
            some["ignored"][:, 0],
            some["right"][:, 0],
            some["rank"],
            some["image"],
            -some["score"],
            some["label"],
        )
        self.order = found[np.lexsort(keys)]
        self.records = records
        self._curves: dict[int, Curves] = {}

    def of_size(self, size: str = "all") -> Curves:
        """Return the curves for the objects of a size, computed once."""
        place = list(SIZES).index(size)
        if place not in self._curves:
            self._curves[place] = Curves(self, place)
        return self._curves[place]

    @cached_property
    def labels(self) -> Array:
        """The classes of the detections, in their order."""
        ordered: Array = self.records["label"][self.order]
        return ordered

    @cached_property
    def ranks(self) -> Array:
        """The ranks of the detections, in their order."""
        ordered: Array = self.records["rank"][self.order]
        return ordered


class Curves:
    """The precision of every class with objects of a size, at every threshold, as a function of weights.

    A weighting costs sums over the detections, and over the right ones of each threshold.

    Attributes:
        classes: the classes with objects, in increasing order.
    """

    def __init__(self, ranked: Ranked, size: int) -> None:
        self._ranked = ranked
        counted = ranked.records["ignored"][ranked.objects, size] == 0
        self._objects = ranked.objects[counted]
        self.classes, self._codes = np.unique(ranked.records["label"][self._objects], return_inverse=True)
        self._starts = ranked.labels.searchsorted(self.classes)
        right = ranked.records["right"][ranked.order, size]
        ignored = ranked.records["ignored"][ranked.order, size]
        parts = [self._threshold(right, ignored, bit) for bit in range(len(IOU_THRESHOLDS))]
        lengths = np.cumsum([0, *(len(part[2]) for part in parts)])
        self._right, self._code = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        self._ignored = np.concatenate([part[2] for part in parts])
        before = [part[3] + length for part, length in zip(parts, lengths, strict=False)]
        self._ignored_before, self._ignored_start = (np.concatenate([rows[i] for rows in before]) for i in (0, 1))
        self._segment = np.concatenate([bit * len(self.classes) + part[1] for bit, part in enumerate(parts)])
        self._bounds = self._segment.searchsorted(np.arange(len(parts) * len(self.classes) + 1))

    def _threshold(self, right: Array, ignored: Array, bit: int) -> tuple[Array, Array, Array, Array]:
        """Return for a threshold the indices of right detections, their class codes, and the indices of ignored ones.

        The fourth array has two rows: the numbers of ignored detections before each right one, and before the first of
        its class.
        """
        places = np.flatnonzero((right >> bit) & 1)
        places = places[np.isin(self._ranked.labels[places], self.classes)]
        codes = self.classes.searchsorted(self._ranked.labels[places])
        passed = np.flatnonzero((ignored >> bit) & 1)
        before = np.stack([passed.searchsorted(places), passed.searchsorted(self._starts[codes])])
        return places, codes, passed, before

    def totals(self, weights: Array) -> Array:
        """Return the weight of the objects of each class."""
        sums: Array = np.bincount(self._codes, weights[self._objects], minlength=len(self.classes))
        return sums

    def precisions(self, weights: Array, read: Read) -> Array:
        """Return the average precisions, classes x thresholds; NaN for classes whose objects have weight 0.

        Args:
            weights: one per record, in the order of the given records.
            read: function from a curve to a number.
        """
        ordered = weights[self._ranked.order]
        summed = np.append(0.0, np.cumsum(ordered))
        passed = np.append(0.0, np.cumsum(ordered[self._ignored]))
        own = ordered[self._right]
        right = np.cumsum(own)
        firsts = self._bounds[self._segment]
        right -= (right - own)[firsts]
        counted = summed[self._right + 1] - summed[self._starts[self._code]]
        counted -= passed[self._ignored_before] - passed[self._ignored_start]
        totals = self.totals(weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.divide(right, counted, out=np.zeros_like(right), where=counted > 0)
            recall = right / totals[self._code]
        result = np.zeros(len(self._bounds) - 1)
        ends = self._bounds.tolist()
        for segment, (start, end) in enumerate(pairwise(ends)):
            if start < end:
                best = np.maximum.accumulate(precision[start:end][::-1])[::-1]
                result[segment] = read(recall[start:end], best)
        rows = result.reshape(len(IOU_THRESHOLDS), len(self.classes)).T
        rows[totals <= 0] = np.nan
        return rows

    def recalls(self, weights: Array, most: int) -> Array:
        """Return the recalls, classes x thresholds, with at most ``most`` detections per class and image."""
        ordered = weights[self._ranked.order]
        own = np.where(self._ranked.ranks[self._right] < most, ordered[self._right], 0.0)
        sums = np.bincount(self._segment, own, minlength=len(self._bounds) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows: Array = sums.reshape(len(IOU_THRESHOLDS), len(self.classes)).T / self.totals(weights)[:, None]
        return rows
