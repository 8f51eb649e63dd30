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
        *(("overlap", np.float32), ("taken", np.float32)),
    ]
)
"""A detection, or an object to be found (score NaN). 41 bytes.

``rank`` is a detection's position by falling score in its class and image. Per size of :data:`.SIZES`, bit ``i`` of
``right`` means that it is right at threshold ``i``, bit ``i`` of ``ignored`` that it is neither right nor wrong. An
object that does not count for a size is ``ignored`` there. ``overlap`` and ``taken``: :func:`.overlaps_in_order`.
"""

SPREAD = 0.0125
"""Thresholds of overlap are spread by this much to both sides in a smoothed value: a quarter of their distance."""

Read = Callable[[Array, Array], float]
"""From increasing recalls, and the maximum precision at each or a higher one, to the average precision of a class."""


def at_recalls(count: int) -> Read:
    """Return the mean of precisions at ``count`` recalls from 0 to 1; 0 for recalls that are not reached."""
    levels = np.linspace(0.0, 1.0, count)

    def read(recall: Array, precision: Array) -> float:
        places = recall.searchsorted(levels)
        return float(precision[places[places < len(recall)]].sum() / count)

    return read


def around_recalls(count: int) -> Read:
    """Return the mean of precisions at ``count`` recalls, each taken over half the distance to the next to both sides.

    That is the area under the curve, with half a recall more at each end.
    """

    def read(recall: Array, precision: Array) -> float:
        ends = float(precision[0]) + (float(precision[-1]) if recall[-1] >= 1 else 0.0)
        return ((count - 1) * whole_area(recall, precision) + ends / 2) / count

    return read


def whole_area(recall: Array, precision: Array) -> float:
    """Return the area under the curve, at every recall that is reached."""
    return float(np.diff(recall, prepend=0.0) @ precision)


class Ranked:
    """Records sorted by class, falling score, image and rank.

    Args:
        records: an array of :data:`RECORD`, in any order.
        spread: of the thresholds, see :class:`Curves`.
    """

    def __init__(self, records: Array, spread: float = 0.0) -> None:
        self._spread = spread
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
            self._curves[place] = Curves(self, place, self._spread)
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

    Args:
        ranked: the records.
        size: index of the size in :data:`~utils.metrics.detection.matching.SIZES`.
        spread: mean over thresholds from this much below to this much above each; 0: as the records say. A detection
            then counts as right by the share of these thresholds at which it is.

    Attributes:
        classes: the classes with objects, in increasing order.
    """

    def __init__(self, ranked: Ranked, size: int, spread: float = 0.0) -> None:
        self._ranked, self._spread = ranked, spread
        counted = ranked.records["ignored"][ranked.objects, size] == 0
        self._objects = ranked.objects[counted]
        self.classes, self._codes = np.unique(ranked.records["label"][self._objects], return_inverse=True)
        self._starts = ranked.labels.searchsorted(self.classes)
        right = ranked.records["right"][ranked.order, size]
        ignored = ranked.records["ignored"][ranked.order, size]
        parts = [self._threshold(right, ignored, bit) for bit in range(len(IOU_THRESHOLDS))]
        lengths = np.cumsum([0, *(len(part[2]) for part in parts)])
        self._right, self._code, self._share = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 4))
        self._ignored = np.concatenate([part[2] for part in parts])
        before = [part[3] + length for part, length in zip(parts, lengths, strict=False)]
        self._ignored_before, self._ignored_start = (np.concatenate([rows[i] for rows in before]) for i in (0, 1))
        self._segment = np.concatenate([bit * len(self.classes) + part[1] for bit, part in enumerate(parts)])
        self._bounds = self._segment.searchsorted(np.arange(len(parts) * len(self.classes) + 1))

    def _threshold(self, right: Array, ignored: Array, bit: int) -> tuple[Array, Array, Array, Array, Array]:
        """Return for a threshold the indices of right detections, their class codes, and the indices of ignored ones.

        The fourth array has two rows: the numbers of ignored detections before each right one, and before the first of
        its class. The fifth: by how much each right one counts.
        """
        share = self._shares((right >> bit) & 1, IOU_THRESHOLDS[bit])
        places = np.flatnonzero(share)
        places = places[np.isin(self._ranked.labels[places], self.classes)]
        codes = self.classes.searchsorted(self._ranked.labels[places])
        passed = np.flatnonzero((ignored >> bit) & 1)
        before = np.stack([passed.searchsorted(places), passed.searchsorted(self._starts[codes])])
        return places, codes, passed, before, share[places]

    def _shares(self, right: Array, threshold: float) -> Array:
        """Return by how much each detection counts as right at a threshold, 0 to 1.

        A detection whose place in the matching does not follow from its two overlaps, as in a crowd, counts as it is.
        """
        if not self._spread:
            return right.astype(np.float64)
        found = self._ranked.records[self._ranked.order]
        ends = (found[name].astype(np.float64) - threshold for name in ("overlap", "taken"))
        over, taken = (np.clip(end / (2 * self._spread) + 0.5, 0, 1) for end in ends)
        follows = ((found["overlap"] >= threshold) & (found["taken"] < threshold)) == right
        shares: Array = np.where(follows, np.maximum(over - taken, 0.0), right)
        return shares

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
        own = ordered[self._right] * self._share
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
