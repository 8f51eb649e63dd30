"""Metrics of regression: RMSE, MAE and R2, of one target or the mean over several, some of which may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import WeighingMetric, mean_or_nan

KINDS = ("rmse", "mae", "r2")
"""Allowed primary metrics."""


class RegressionErrors(WeighingMetric):
    """Errors of predicted numbers.

    - ``rmse``: the root of the mean squared error. ``mae``: the mean absolute error. Both in the target's unit.
    - ``r2``: 1 minus the squared error over that of the targets' mean, as in scikit-learn's ``r2_score``; NaN if all
      targets are equal.

    Each of several targets has a value over the samples with a known target, and the metric is their mean (as in OGB's
    evaluators), without targets that are unknown for all samples.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the others are secondary figures.
        names: of the targets.
    """

    def __init__(self, primary: str = "rmse", names: Sequence[str] = ()) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self.names = tuple(names)
        self.higher_is_better = primary == "r2"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record per sample, float64 [N, 2, T]: predictions and targets.

        Args:
            predictions: per sample a number or T of them.
            targets: the same, NaN if unknown.

        Raises:
            InputError: the numbers of values differ.
        """
        rows = [np.array([_numbers(one), _numbers(right)]) for one, right in _pairs(predictions, targets, self.name)]
        return np.stack(rows) if rows else np.zeros((0, 2, 1))

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; errors are computed once."""
        columns = [_Column(records[:, 0, place], records[:, 1, place]) for place in range(records.shape[2])]
        known = [column for column in columns if len(column.places)]
        return lambda weights: mean_or_nan([column.of(self.primary, weights) for column in known])

    def unknown(self) -> str:
        """Return why the value is NaN."""
        kept = self._all()
        if self.primary == "r2" and not np.isnan(kept[:, 0]).any():
            return "all targets are equal, so R2 is undefined; use --metric rmse, or add samples"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures."""
        kept = self._all()
        return {kind: RegressionErrors(kind).value(kept, np.ones(len(kept))) for kind in KINDS if kind != self.primary}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each target, if there are several."""
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
    """One target: the indices of its known values, these values, and the errors of the predictions."""

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


def _numbers(value: Any) -> Array:
    return np.atleast_1d(np.asarray(value, np.float64))


def _pairs(predictions: Any, targets: Sequence[Any] | Array, name: str) -> list[tuple[Any, Any]]:
    pairs = list(zip(predictions, targets, strict=True))
    for one, right in pairs:
        if np.size(one) != np.size(right):
            raise InputError(
                f"{name}: {np.size(one)} predicted values for {np.size(right)} targets; use as many targets as the "
                "model has values"
            )
    return pairs
