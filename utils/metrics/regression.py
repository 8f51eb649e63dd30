"""How far numbers are off: RMSE, MAE and R2, of one target or the mean over several, some of which may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import RecordMetric

KINDS = ("rmse", "mae", "r2")
"""What may be the metric of record."""


class RegressionErrors(RecordMetric):
    """Errors of predicted numbers.

    - ``rmse``: the root of the mean squared error. ``mae``: the mean absolute error. Both in the target's unit.
    - ``r2``: 1 less the squared error over that of the mean of what is right, as scikit-learn's ``r2_score``; NaN where
      all that is right is equal.

    Of several targets each has a value of its own, over the samples whose target is known, and the metric is their mean
    (as OGB's evaluators take it). A target that is known nowhere has none.

    Args:
        primary: one of :data:`KINDS`; the others are told beside it. names: of the targets.

    Raises:
        ConfigError: it is none of these.
    """

    def __init__(self, primary: str = "rmse", names: Sequence[str] = ()) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} is none of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self.names = tuple(names)
        self.higher_is_better = primary == "r2"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record per sample, float64 [N, 2, T]: what is predicted, and what is right.

        Args:
            predictions: per sample a number or T of them. targets: the same, NaN where one is not known.
            contexts: not used.

        Raises:
            InputError: the numbers of values differ.
        """
        rows = [np.array([_numbers(one), _numbers(right)]) for one, right in _pairs(predictions, targets, self.name)]
        return np.stack(rows) if rows else np.zeros((0, 2, 1))

    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of record."""
        return self.weighing(records)(weights)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; errors are computed once."""
        columns = [_Column(records[:, 0, place], records[:, 1, place]) for place in range(records.shape[2])]
        known = [column for column in columns if len(column.places)]
        return lambda weights: _mean([column.of(self.primary, weights) for column in known])

    def unknown(self) -> str:
        """Return why there is no value."""
        kept = self._all()
        if self.primary == "r2" and not np.isnan(kept[:, 0]).any():
            return "all that is right is equal, so there is nothing to explain; take --metric rmse, or add samples"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures."""
        kept = self._all()
        return {kind: RegressionErrors(kind).value(kept, np.ones(len(kept))) for kind in KINDS if kind != self.primary}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each target, where there are several."""
        kept = self._all()
        count = kept.shape[2]
        if count < 2:
            return {}
        names = self.names if len(self.names) == count else tuple(f"target {place}" for place in range(count))
        ones, found = np.ones(len(kept)), {}
        for place, name in enumerate(names):
            column = _Column(kept[:, 0, place], kept[:, 1, place])
            found[name] = {kind: column.of(kind, ones) for kind in KINDS} | {"samples": float(len(column.places))}
        return found


class _Column:
    """One target: where it is known, what is right there, and how far off the prediction is."""

    def __init__(self, predicted: Array, right: Array) -> None:
        self.places = np.flatnonzero(~np.isnan(right))
        self.right = right[self.places]
        self.off = predicted[self.places] - self.right

    def of(self, kind: str, weights: Array) -> float:
        own = weights[self.places]
        total = float(own.sum())
        if not total:
            return math.nan
        if kind == "mae":
            return float(np.dot(own, np.abs(self.off))) / total
        with np.errstate(over="ignore"):
            squared = float(np.dot(own, self.off * self.off))
        if kind == "rmse":
            return math.sqrt(squared / total) if math.isfinite(squared) else squared
        around = self.right - float(np.dot(own, self.right)) / total
        spread = float(np.dot(own, around * around))
        some = self.right[own > 0]
        return 1 - squared / spread if spread and not (some == some[0]).all() else math.nan


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _numbers(value: Any) -> Array:
    return np.atleast_1d(np.asarray(value, np.float64))


def _pairs(predictions: Any, targets: Sequence[Any] | Array, name: str) -> list[tuple[Any, Any]]:
    pairs = list(zip(predictions, targets, strict=True))
    for one, right in pairs:
        if np.size(one) != np.size(right):
            raise InputError(
                f"{name}: {np.size(one)} predicted values came with {np.size(right)} targets; name as many targets as "
                "the model gives values"
            )
    return pairs
