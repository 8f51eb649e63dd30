"""Metrics of person verification: accuracy by folds of disjoint people, AUC, EER, and TAR at a fixed FAR."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import WeighingMetric, mean_or_nan
from utils.metrics.gaps import Gaps, of_classes, of_threshold
from utils.metrics.roc import accepted_at, accepted_intervals, area, equal_error, in_order, roc_curve

RECORD = np.dtype(
    [("score", np.float64), ("same", np.bool_), ("first", np.int64), ("second", np.int64), ("fold", np.int16)]
)
"""A pair: similarity (higher is more), whether it is one person, both people (63 bits of a hash of the name), and its
fold, negative if it is not used for accuracy."""

FARS = (0.01, 0.001)
"""Default rates of false acceptance."""

METRICS = ("accuracy", "auc")
"""Allowed primary metrics."""


class Verification(WeighingMetric):
    """How well the scores of pairs separate one person from two.

    - ``accuracy``: the mean over the folds of the share of pairs on the right side of a threshold, which is the best
      one for all *other* folds (LFW's "View 2": Huang et al. 2007). Folds have disjoint people, so it measures unknown
      people. Of equally good thresholds the middle one is used, half way between two scores. Pairs without a fold do
      not count.
    - ``auc``: area under the ROC curve of all pairs, ties counted half.
    - ``eer``: the rate at which false acceptance and false rejection are equal, interpolated linearly on the ROC curve.
    - ``tar_at_far_F``: the maximum share of pairs of one person that is accepted with at most the share F of those of
      two. NaN if there are fewer than 1 / F of those, because then the threshold is ambiguous. Its 95 % interval is a
      bootstrap over people: people are drawn with replacement, and a pair is weighted by the draws of both (Bolle,
      Ratha and Pankanti 2004, "Error analysis of pattern recognition systems: the subsets bootstrap", with the two-way
      weights of Owen 2007, "The pigeonhole bootstrap").

    A pair whose score is NaN is wrong at every threshold. If all pairs are of one kind, accuracy, AUC and EER are NaN.

    Args:
        primary: one of :data:`METRICS`.
        fars: rates of false acceptance, above 0 and below 1.

    Raises:
        ConfigError: invalid arguments.
    """

    def __init__(self, primary: str = "accuracy", fars: Sequence[float] = FARS) -> None:
        if primary not in METRICS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(METRICS)}")
        wrong = next((far for far in fars if not 0 < far < 1), None)
        if wrong is not None:
            raise ConfigError(f"--far {wrong} must be above 0 and below 1, such as 0.01")
        self.primary, self.fars = primary, tuple(float(far) for far in fars)
        self.name = primary

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record of :data:`RECORD` per pair.

        Args:
            predictions: per pair its score, or an object with a ``score``; higher is more similar.
            targets: per pair an object with ``same``, ``people`` (two names) and ``fold``, such as
                :class:`utils.datasets.image.face_pairs.Truth`.

        Raises:
            InputError: a prediction is not a number.
        """
        found = np.empty(len(targets), RECORD)
        for row, prediction, target in zip(found, predictions, targets, strict=True):
            score = getattr(prediction, "score", prediction)
            if not isinstance(score, (int, float, np.number)):
                raise InputError(f"{self.name}: a {type(score).__name__} is not a score; pass a number per pair")
            row["score"], row["same"], row["fold"] = float(score), target.same, target.fold
            row["first"], row["second"] = map(_number, target.people)
        return found

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted once."""
        if self.primary == "auc":
            ordered = in_order(records)
            return lambda weights: area(roc_curve(ordered, weights))
        counted = np.flatnonzero(records["fold"] >= 0)
        order = counted[np.argsort(-records["score"][counted], kind="stable")]  # NaN is last
        kept = records[order]
        return lambda weights: mean_or_nan([fold.accuracy for fold in _by_folds(kept, weights[order]).values()])

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return the scores' distances from the threshold of their folds; for the AUC the gaps between both kinds.

        The units are both people of a pair.
        """
        if self.primary == "auc":
            return of_classes(target["score"], baseline["score"], baseline["same"], people(baseline))
        kept = baseline["fold"] >= 0
        ours, theirs = target[kept], baseline[kept]
        folds = self._folds(theirs, np.ones(len(theirs)))
        if not folds:
            return None
        thresholds = np.array([folds[fold].threshold for fold in theirs["fold"].tolist()])
        return of_threshold(ours["score"], theirs["score"], thresholds, people(theirs), np.flatnonzero(kept))

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the largest weight of a pair in the value, over the value."""
        value = self.value(baseline, np.ones(len(baseline)))
        if self.primary == "auc" or not value:
            return 1 / value if value else math.nan
        sizes = np.unique(baseline["fold"][baseline["fold"] >= 0], return_counts=True)[1]
        return float(sizes.sum() / (len(sizes) * sizes.min()) / value)

    def unknown(self) -> str:
        """Return why the value is NaN: all pairs are of one kind, or there are fewer than two folds."""
        kept = self._all()
        counted = kept if self.primary == "auc" else kept[kept["fold"] >= 0]
        if len(counted) and (counted["same"].all() or not counted["same"].any()):
            kind, other = ("one person", "two people") if counted["same"].all() else ("two people", "one person")
            return f"all {len(counted)} pairs that were run show {kind}; add pairs of {other}"
        if self.primary == "accuracy" and len(np.unique(counted["fold"])) < 2:
            return "a fold needs the threshold of other folds, but the pairs are in one; use --metric auc"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures of the class.

        Additionally ``accuracy_se``, the standard error of the mean over the folds, as in LFW's tables; ``threshold``,
        the mean of the folds' finite ones; and the ends of TAR's intervals, ``_low`` and ``_high``.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        curve = roc_curve(in_order(kept), ones)
        figures = {"accuracy": math.nan, "accuracy_se": math.nan, "threshold": math.nan} | self._by_fold(kept, ones)
        figures |= {"auc": area(curve), "eer": equal_error(curve)}
        figures.pop(self.primary)
        intervals = accepted_intervals(kept, self.fars)
        for far, (low, high) in zip(self.fars, intervals, strict=True):
            name = f"tar_at_far_{far:g}"
            figures[name] = accepted_at(curve, far)
            if not math.isnan(low):
                figures |= {f"{name}_low": low, f"{name}_high": high}
        return figures

    def _by_fold(self, kept: Array, ones: Array) -> dict[str, float]:
        folds = self._folds(kept, ones)
        if not folds:
            return {}
        values = [fold.accuracy for fold in folds.values()]
        error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        thresholds = mean_or_nan([fold.threshold for fold in folds.values() if math.isfinite(fold.threshold)])
        return {"accuracy": mean_or_nan(values), "accuracy_se": error, "threshold": thresholds}

    def _folds(self, kept: Array, weights: Array) -> dict[int, Fold]:
        counted = np.flatnonzero(kept["fold"] >= 0)
        order = counted[np.argsort(-kept["score"][counted], kind="stable")]
        return _by_folds(kept[order], weights[order])

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return ``accuracy``, ``threshold`` and ``pairs`` of each fold; empty without folds.

        The threshold is NaN if the best choice is to accept all, or none.
        """
        kept = self._all()
        folds = self._folds(kept, np.ones(len(kept)))
        return {
            f"fold {number + 1}": {
                "accuracy": one.accuracy,
                "threshold": one.threshold if math.isfinite(one.threshold) else math.nan,
                "pairs": int(one.pairs),
            }
            for number, one in folds.items()
        }


class Fold(NamedTuple):
    """Result of a fold: its share of right pairs, the threshold from the other folds, and its number of pairs."""

    accuracy: float
    threshold: float
    pairs: float


def people(records: Array) -> Array:
    """Return both people of each pair, N x 2; of a pair of one person the second is a number of its own."""
    own = -1 - np.arange(len(records))
    return np.stack([records["first"], np.where(records["first"] == records["second"], own, records["second"])], 1)


@lru_cache(maxsize=65536)
def _number(name: str) -> int:
    """Return 63 bits of a hash of a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def _by_folds(records: Array, weights: Array) -> dict[int, Fold]:
    """Return the result of each fold; records by falling score, NaN last.

    Empty for fewer than two folds, or if all pairs are of one kind, because accepting all, or none, would be right.
    """
    some = weights > 0
    score, same, fold, weights = records["score"][some], records["same"][some], records["fold"][some], weights[some]
    numbers = np.unique(fold).tolist()
    if len(numbers) < 2 or same.all() or not same.any():
        return {}
    found = {}
    for number in numbers:
        own = fold == number
        threshold = _best_threshold(score[~own], same[~own], weights[~own])
        with np.errstate(invalid="ignore"):
            right = np.where(same[own], score[own] >= threshold, score[own] < threshold)  # NaN is neither
        total = float(weights[own].sum())
        found[number] = Fold(float(weights[own][right].sum()) / total, threshold, total)
    return found


def _best_threshold(score: Array, same: Array, weights: Array) -> float:
    """Return the lowest accepted score that is right for the most pairs; the scores fall, NaN last.

    ``inf`` accepts none and ``-inf`` all.
    """
    known = ~np.isnan(score)
    score, gain = score[known], np.where(same, weights, -weights)[known]
    if not len(score):
        return math.inf
    ends = np.flatnonzero(np.append(np.diff(score) != 0, True))
    levels = score[ends]
    gains = np.concatenate([[0.0], np.cumsum(gain)[ends]])
    best = np.flatnonzero(gains == gains.max())
    place = int(best[(len(best) - 1) // 2])
    if place == 0:
        return math.inf
    if place == len(levels):
        return -math.inf
    above, below = float(levels[place - 1]), float(levels[place])
    middle = below + (above - below) / 2
    return middle if below < middle <= above else above
