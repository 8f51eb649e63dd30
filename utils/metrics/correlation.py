"""Correlation of scores with human ratings: Spearman's and Pearson's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import WeighingMetric

RECORD = np.dtype([("score", np.float64), ("rating", np.float64)])
"""Score of the model and rating by people."""

KINDS = ("spearman", "pearson")
"""Allowed primary metrics."""


class Correlation(WeighingMetric):
    """The correlation of scores with ratings, from -1 to 1.

    - ``pearson``: of the numbers, 1 if one is a linear function of the other.
    - ``spearman``: of their ranks, ties having their mean rank; 1 if both have the same order.

    A weight repeats a sample. NaN if a score is NaN, all scores or all ratings are equal, or there is one sample.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the other one is a secondary figure.
    """

    def __init__(self, primary: str = "spearman") -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        self.name = self.primary = primary

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record of :data:`RECORD` per sample.

        Args:
            predictions: per sample a number, or an object with a ``score``.
            targets: per sample its rating, a number.

        Raises:
            InputError: a prediction or a rating is not a number.
        """
        found = np.empty(len(targets), RECORD)
        for row, prediction, rating in zip(found, predictions, targets, strict=True):
            score = getattr(prediction, "score", prediction)
            for what, value in (("score", score), ("rating", rating)):
                if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                    raise InputError(f"{self.name}: a {type(value).__name__} is not a {what}; pass a number for each")
            row["score"], row["rating"] = float(score), float(rating)
        return found

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted once."""
        if self.primary == "pearson":
            return lambda weights: pearson(records["score"], records["rating"], weights)
        if np.isnan(records["score"]).any() or np.isnan(records["rating"]).any():
            return lambda weights: math.nan
        scores, ratings = _Ranks(records["score"]), _Ranks(records["rating"])
        return lambda weights: pearson(scores.of(weights), ratings.of(weights), weights)

    def unknown(self) -> str:
        """Return why the value is NaN."""
        kept = self._all()
        if len(kept) < 2:
            return "one sample has no correlation; add more"
        for what, fix in (("rating", "add samples with others"), ("score", "check the outputs of the model")):
            if len(np.unique(kept[what])) == 1:
                return f"all {len(kept)} {what}s are {kept[what][0]:g}, so the correlation is undefined; {fix}"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other correlation."""
        other = next(kind for kind in KINDS if kind != self.primary)
        kept = self._all()
        return {other: Correlation(other).value(kept, np.ones(len(kept)))}


class _Ranks:
    """Ranks of numbers, with mean ranks for ties, for any weights."""

    def __init__(self, values: Array) -> None:
        levels, self._level = np.unique(values, return_inverse=True)
        self._count = len(levels)

    def of(self, weights: Array) -> Array:
        """Return the mean rank of each number if it occurred ``weights`` times."""
        held = np.bincount(self._level, weights, self._count)
        ranks: Array = (np.cumsum(held) - held / 2)[self._level]
        return ranks


def pearson(one: Array, other: Array, weights: Array) -> float:
    """Return the weighted correlation of two rows of numbers; NaN if one does not vary."""
    total = float(weights.sum())
    if not total:
        return math.nan
    some = weights > 0
    one, other, weights = (np.asarray(row[some], np.float64) for row in (one, other, weights))
    if not (np.isfinite(one).all() and np.isfinite(other).all()) or (one == one[0]).all() or (other == other[0]).all():
        return math.nan
    a, b = (row - float(np.dot(weights, row)) / total for row in (one, other))
    a, b = (row / scale if (scale := float(np.abs(row).max())) else row for row in (a, b))  # prevents overflow
    size = math.sqrt(float(np.dot(weights, a * a)) * float(np.dot(weights, b * b)))
    return max(-1.0, min(1.0, float(np.dot(weights, a * b)) / size)) if size else math.nan
