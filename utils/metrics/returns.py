"""The mean return of episodes, its confidence interval, and the agreement of two policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array
from utils.metrics.base import RecordMetric

EPISODE = np.dtype([("total", "<f8"), ("steps", "<i8"), ("agreed", "<f8"), ("recorded", "<i8")])
"""An episode: its return, its steps, and the number of recorded observations with the recorded action, out of how many
(for continuous actions the sum of their agreements)."""

DRAWS = 1000
"""Draws of episodes for the interval; its ends are the 2.5 % and the 97.5 % quantiles."""

ENOUGH = 100
"""Minimum number of episodes for a meaningful mean return."""


class MeanReturn(RecordMetric):
    """Mean return of an episode: the undiscounted sum of its rewards.

    Secondary figures: ``low`` and ``high``, the ends of its 95 % interval; the standard deviation of a return; the mean
    number of steps; and ``action_agreement``, the share of recorded observations with the recorded action.
    """

    name = "mean_return"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None) -> Array:
        """Return one record per episode; predictions have ``total``, ``steps``, ``agreed`` and ``recorded``."""
        rows = [(one.total, one.steps, one.agreed, one.recorded) for one in predictions]
        return np.array(rows, EPISODE)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean of the returns; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(np.dot(weights, records["total"]) / total) if total else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return the secondary figures."""
        records = np.sort(self._all(), order=EPISODE.names)
        returns, recorded = records["total"], int(records["recorded"].sum())
        low, high = interval(returns)
        found = {"low": low, "high": high, "sd": float(returns.std()), "mean_steps": float(records["steps"].mean())}
        if recorded:
            found["action_agreement"] = math.fsum(records["agreed"].tolist()) / recorded
        return found


def interval(values: Array, draws: int = DRAWS) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a mean: the percentile bootstrap (Efron, 1979), always the same draws.

    Args:
        values: float64 [N], in an order independent of how they were added.
    """
    if not len(values) or not np.isfinite(values).all():
        return math.nan, math.nan
    chance, count = np.random.default_rng(0), len(values)
    means = [values[chance.integers(0, count, count)].mean() for _ in range(draws)]
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return low, high
