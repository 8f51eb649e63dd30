"""The statistics of any metric that is not a mean: both runs' values over the same weights of units."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from engine import Array, DataError
from model_config.judge.intervals import TAIL, WIDEST, Evidence, Floats, percentiles, t_factor, widened
from model_config.judge.pairs import Pairs
from utils.metrics.base import Metric

RESAMPLES = 1000
"""Bootstrap resamples; :data:`FEWER` where the two runs have more than :data:`MANY` records together."""

FEWER = 400

MANY = 40_000

ALONE = 5000
"""Units that are looked at one by one, for the metric of each."""

LEFT_OUT = 300
"""Units that are left out one at a time, each time for two computations of the metric."""

_NO_VALUES: Floats = np.full((1, 2), math.nan)
"""Where no unit can be left out."""

Values = Callable[[Floats], tuple[float, float]]
"""From a weight per unit to the metric of both runs."""


def values_of(pairs: Pairs, metric: Metric) -> Values:
    """Return the function that computes both runs' metric from a weight per unit; NaN where there is none."""
    ours, theirs = pairs.codes
    target, baseline = metric.weighing(pairs.target), metric.weighing(pairs.baseline)

    def compute(weights: Floats) -> tuple[float, float]:
        return _number(target, weights[ours]), _number(baseline, weights[theirs])

    return compute


def _value(metric: Metric, records: Array, weights: Floats) -> float:
    return _number(partial(metric.value, records), weights)


def _number(weighed: Callable[[Array], float], weights: Floats) -> float:
    try:
        with np.errstate(all="ignore"):
            return float(weighed(weights))
    except (ArithmeticError, ValueError):  # a resample for which the metric does not exist
        return math.nan


def risen(pairs: Pairs, metric: Metric) -> tuple[int, int]:
    """Return in how many units the target's metric is above the baseline's, and below it, each unit taken alone.

    A unit for which there is no such value (a picture without objects has no average precision) is in neither count,
    and so are all where more than :data:`ALONE` have other records.
    """
    chosen = pairs.differing_units()
    if len(chosen) > ALONE:
        return 0, 0
    both = [_alone(records, codes, chosen, metric) for records, codes in zip(pairs.records, pairs.codes, strict=True)]
    with np.errstate(invalid="ignore"):
        return int(np.count_nonzero(both[0] > both[1])), int(np.count_nonzero(both[0] < both[1]))


def _alone(records: Array, codes: Array, units: Array, metric: Metric) -> Floats:
    """Return the metric of each of some units alone; NaN where there is none."""
    order = np.argsort(codes, kind="stable")
    starts, ends = (np.searchsorted(codes[order], units, side=side) for side in ("left", "right"))
    found = [records[order[start:end]] for start, end in zip(starts, ends, strict=True)]
    return np.array([_value_or_none(metric, one) for one in found], dtype=np.float64)


def _value_or_none(metric: Metric, records: Array) -> float:
    try:
        return _value(metric, records, np.ones(len(records)))
    except DataError:  # nothing to be measured in this unit
        return math.nan


def is_mean(pairs: Pairs, metric: Metric | None) -> bool:
    """Say whether the metric is the weighted mean of one number per record, of the same records in both runs.

    That is tried, not declared: at three weightings of the records of both runs. Without a metric it is taken as given.
    """
    plain = pairs.target.ndim == 1 and all(each.dtype.kind in "biuf" for each in (pairs.target, pairs.baseline))
    if not plain or not pairs.matched or not len(pairs.target):
        return False
    if metric is None:
        return True
    rng = np.random.default_rng(0)
    for records in (pairs.target, pairs.baseline):
        for _ in range(3):
            weights = rng.integers(0, 4, len(records)).astype(np.float64)
            weights[0] += 1
            wanted = float(np.average(records.astype(np.float64), weights=weights))
            if not math.isclose(_value(metric, records, weights), wanted, rel_tol=1e-9, abs_tol=1e-12):
                return False
    return True


def is_mean_of_samples(metric: Metric) -> bool:
    """Say whether a metric with one number per sample is their mean, as a few numbers within its bounds show."""
    low, high = (0.0, 1.0) if metric.bounds is None else metric.bounds
    records = np.random.default_rng(0).choice([low, high], 20)
    return metric.per_sample and is_mean(Pairs(records, records, metric.name), metric)


class Valued:
    """A metric beside the records of two runs: all that the gate asks of it, computed when it is asked for.

    Attributes:
        higher_is_better, bounds: the metric's.
    """

    def __init__(self, pairs: Pairs, metric: Metric) -> None:
        self._pairs, self._metric = pairs, metric
        self.higher_is_better = metric.higher_is_better
        self.bounds = metric.bounds

    @cached_property
    def _compute(self) -> Values:
        return values_of(self._pairs, self._metric)

    def is_mean(self) -> bool:
        """Say whether the metric is the mean of the records (:func:`is_mean`)."""
        return is_mean(self._pairs, self._metric)

    def whole(self) -> tuple[float, float]:
        """Return the metric of all records of both runs."""
        return self._compute(np.ones(self._pairs.total))

    def risen(self) -> tuple[int, int]:
        """Return in how many units the metric rose and fell (:func:`risen`)."""
        return risen(self._pairs, self._metric)

    def resampled(self, seed: int) -> tuple[Floats, Floats]:
        """Return both runs' metric for every resample of the units, and for every one of :func:`chosen` left out."""
        compute, total = self._compute, self._pairs.total
        rng = np.random.default_rng(seed)
        drawn = np.array([compute(_drawn(rng, total)) for _ in range(resamples(self._pairs))])
        left_out = chosen(self._pairs)
        without = np.array([compute(_without(unit, total)) for unit in left_out]) if left_out else _NO_VALUES
        return drawn, without


def resamples(pairs: Pairs) -> int:
    """Return how many resamples a bootstrap of the units draws."""
    return RESAMPLES if len(pairs.target) + len(pairs.baseline) <= MANY else FEWER


def of_values(pairs: Pairs, valued: Valued, reference: float, tolerance: float, seed: int) -> Evidence:
    """Weigh any metric by a bootstrap of units: both runs get the same weights in every resample.

    It is made wider by what the units cannot show: a share of 1 - 0.025 ** (1 / units) of other kinds, each of which is
    taken to move one run alone by as much as the most influential unit that was seen does when it is left out, and at
    least by an even share of the value: where all units are alike (all right, say) leaving one out shows nothing.
    """
    whole, total = valued.whole(), pairs.total
    drawn, without = valued.resampled(seed)
    bootstrap = percentiles(drawn[:, 0], drawn[:, 1], reference)
    influence = float(np.nan_to_num(np.abs(without - whole), nan=math.inf).max())
    influence = max(influence, abs(reference) / total)
    share = (1 - TAIL ** (1 / total)) * total
    hidden = min(share * influence / abs(reference), WIDEST)
    drift = (whole[0] - whole[1]) / abs(reference)
    error = _jackknife(without, reference) if len(chosen(pairs)) == total else 0.0
    return widened(drift, bootstrap, hidden, total, pairs.sampled, tolerance, error)


def _drawn(rng: np.random.Generator, total: int) -> Floats:
    """Return how often each unit is drawn when as many as there are are drawn with repetition."""
    return np.bincount(rng.integers(0, total, total), minlength=total).astype(np.float64)


def _without(unit: int, total: int) -> Floats:
    weights = np.ones(total)
    weights[unit] = 0
    return weights


def _jackknife(without: Floats, reference: float) -> float:
    """Return the jackknife's standard error of the relative difference (Efron and Tibshirani 1993, 11.5)."""
    drifts = (without[:, 0] - without[:, 1]) / np.abs(without[:, 1])
    if not np.isfinite(drifts).all() or (without[:, 1] * reference <= 0).any():
        return WIDEST / t_factor(len(drifts))
    return float(math.sqrt((len(drifts) - 1) * drifts.var()))


def chosen(pairs: Pairs) -> list[int]:
    """Return the units to leave out: all where they are few (none of one), else those that matter most, and others.

    Those with the most records, and those at either end of every column of numbers, by unit totals, in both runs; and a
    spread of the rest.
    """
    total = pairs.total
    if total <= LEFT_OUT:
        return list(range(total)) if total > 1 else []
    orders = []
    for records, codes in zip((pairs.target, pairs.baseline), pairs.codes, strict=True):
        columns = [np.ones(len(records)), *_numbers(records)]
        for column in columns[:9]:
            sums = np.bincount(codes, weights=np.nan_to_num(column), minlength=total)
            orders.append(np.argsort(sums, kind="stable"))
    ends = max(1, LEFT_OUT // (4 * len(orders)))
    found = {int(unit) for order in orders for unit in (*order[:ends], *order[-ends:])}
    rest = max(0, LEFT_OUT - len(found))
    spread = orders[1 % len(orders)][np.linspace(0, total - 1, rest).astype(np.intp)]
    return sorted(found | set(map(int, spread)))


def _numbers(records: Array) -> list[Floats]:
    """Return all columns of numbers that records have, fields within fields too."""
    if records.dtype.names is not None:
        return [column for name in records.dtype.names for column in _numbers(records[name])]
    if records.dtype.kind not in "biuf":
        return []
    return list(records.reshape(len(records), -1).astype(np.float64).T) if len(records) else []
