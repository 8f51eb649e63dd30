"""A 95 % bound of the metric's relative change on other samples, estimated from two runs on the same samples.

Three methods, in this order:

* ``margins``: the metric gives for each sample a *margin*: how far its outputs are from changing what it counts (top-1:
  the score of the label minus the best other score). The two runs show how far the margins move. A prediction changes
  where the ratio deviation / margin reaches 1. Because the density of margins near 0 is finite, the ratios have a tail
  P(ratio > x) proportional to 1 / x or lighter, so the share beyond 1 follows from the largest observed ratios without
  any changed prediction (Hill's idea with the exponent fixed at 1).
* ``counts``: values of 0 and 1 without margins: the upper limit of a Poisson count of changed units.
* ``differences``: any other metric, and one of which many units differ: a delete-a-group jackknife of the paired
  relative change over units, with Student's t (Shao and Tu 1995, 2.3). No sample that was not observed is assumed.
  A metric with thresholds jumps where a score crosses one; its smoothed variant changes by the same in the mean, in
  proportion to the deviations (:meth:`utils.metrics.base.Metric.smoothed`). The interval includes the observed change.

Margins and deviations are in the unit of the outputs; shares, changes and bounds are relative (0.001 is 0.1 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from engine import Array
from model_config.judge.pairs import Pairs
from utils.metrics.base import Metric
from utils.metrics.gaps import Gaps, curve_of, tail_share, tail_size

Floats = np.ndarray[Any, np.dtype[np.float64]]

Z = NormalDist().inv_cdf(0.975)
Z_DECIDES = Z + NormalDist().inv_cdf(0.9)
"""Number of standard errors with which nine runs of ten with :attr:`Estimate.needed` samples reach a verdict."""

GROUPS = 100
"""Groups that the jackknife deletes in turn; with fewer units, each unit is a group."""

LIMIT = 10**8
"""Largest number of samples that is recommended."""

MANY = 20
"""With so many changes, in as many groups, the differences are enough, even if the metric has margins."""

ENOUGH = 30
"""With so many units, the differences of a smoothed metric are used even if it has margins."""

_LESS = 4  # divides the degrees of freedom of a smoothed metric: with 30 images the error of mAP follows its change

Values = Callable[[Floats], tuple[float, float]]
"""From one weight per unit to the metric of both runs."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The change of the metric to expect on other samples.

    Attributes:
        method: ``margins``, ``counts`` or ``differences``.
        interval: 95 % interval of the relative change of the metric.
        needed: samples with which the bound would be within the tolerance in nine runs of ten; ``None`` where the bound
            is within it, or where no number of samples would do.
        tail: with margins: pairs of a ratio deviation / margin and the share of samples with at least this ratio, for
            a plot; the largest ratio first.
    """

    method: str
    interval: tuple[float, float]
    needed: int | None = None
    tail: tuple[tuple[float, float], ...] = ()

    @property
    def bound(self) -> float:
        """The largest relative change, in either direction, that the interval admits."""
        return max(map(abs, self.interval))


def estimate(pairs: Pairs, valued: Valued, tolerance: float, seed: int = 0) -> Estimate | None:
    """Bound the relative change of a metric on other samples.

    Args:
        pairs: the records of both runs, with their margins where the metric gives any.
        valued: the metric of these records.
        tolerance: for :attr:`Estimate.needed`.
        seed: of the groups that the jackknife deletes.

    Returns:
        ``None`` without an estimate: a single unit, a reference of 0, a metric without a value for some group.
    """
    target, reference = valued.whole()
    if not reference or pairs.total < 2:
        return None
    drift, scaled = (target - reference) / abs(reference), valued.gaps()
    if scaled is None and _is_binary(pairs) and valued.is_mean():
        return _of_counts(pairs, abs(reference), tolerance)
    if scaled is None or scaled[0].changes >= MANY or (valued.smooth and pairs.total >= ENOUGH):
        without = valued.without(seed)
        if scaled is None or _kurtosis(without) <= 3 + len(without) / MANY:
            found = _of_differences(without, valued.smooth_drift(), drift, pairs, tolerance)
            return found and replace(found, tail=curve_of(scaled[0].ratios()) if scaled else ())
    return _of_tail(*scaled, abs(drift), tolerance, pairs.sampled)


# ---------------------------------------------------------------------------------------------------------- margins


def _of_tail(gaps: Gaps, scale: float, drift: float, tolerance: float, samples: int) -> Estimate:
    """Bound the change by the ratios; ``scale``: relative change per share of ratios of 1 or more."""
    ratios = gaps.ratios()
    share, effective = tail_share(ratios, gaps.units)
    high = min(1.0, share * poisson_upper(effective) / effective)
    changed = int(np.count_nonzero(ratios >= 1))
    if poisson_lower(changed) > high * len(ratios):  # more changes than the margins explain
        share, high = changed / len(ratios), min(1.0, poisson_upper(changed) / len(ratios))
    high = max(high * scale, drift)
    needed = None
    if high > tolerance > share * scale:
        per_sample = effective / tail_size(len(ratios))
        limit = share * scale
        needed = _enough(lambda count: limit * _upper_factor(per_sample * tail_size(count)), tolerance, len(ratios))
        needed = needed and whole_samples(needed * samples / len(ratios), samples)
    return Estimate("margins", (-high, high), needed, curve_of(ratios))


# ----------------------------------------------------------------------------------------------------------- counts


def _of_counts(pairs: Pairs, reference: float, tolerance: float) -> Estimate:
    """Bound the share of units that change; a unit counts by its share of the records."""
    changed, total = pairs.differing(), pairs.total
    sizes = np.bincount(pairs.codes[1], minlength=total)
    scale = float(sizes.max() / sizes.mean()) / reference
    high = min(1.0, poisson_upper(changed) / total) * scale
    needed = None
    rate = changed / total
    if high > tolerance > rate * scale:
        needed = _enough(lambda count: poisson_upper(rate * count) / count * scale, tolerance, total)
        needed = needed and whole_samples(needed * pairs.sampled / total, pairs.sampled)
    return Estimate("counts", (-high, high), needed)


def _is_binary(pairs: Pairs) -> bool:
    return all(one.ndim == 1 and one.dtype.kind in "biuf" and np.isin(one, (0, 1)).all() for one in pairs.records)


def poisson_upper(count: float) -> float:
    """Return the upper 97.5 % limit of the mean of a Poisson distribution of which ``count`` was observed.

    Half the chi-squared quantile with 2 (count + 1) degrees of freedom, by Wilson and Hilferty's approximation (within
    1 %; 3.73 for 0, exactly 3.69).
    """
    shape = count + 1
    return shape * (1 - 1 / (9 * shape) + Z / (3 * math.sqrt(shape))) ** 3


def poisson_lower(count: float) -> float:
    """Return the lower 97.5 % limit, the counterpart of :func:`poisson_upper`."""
    return count * max(0.0, 1 - 1 / (9 * count) - Z / (3 * math.sqrt(count))) ** 3 if count else 0.0


def _upper_factor(count: float) -> float:
    return poisson_upper(count) / count


def _enough(bound: Callable[[int], float], tolerance: float, samples: int) -> int | None:
    """Return the smallest number of samples, to two digits, with a bound within the tolerance."""
    count = samples
    while count <= LIMIT:
        if bound(count) <= tolerance:
            return whole_samples(count, samples)
        count = math.ceil(count * 1.05)
    return None


# ------------------------------------------------------------------------------------------------------ differences


class Valued:
    """A metric of the records of two runs: the values that the gate needs, computed on demand.

    Args:
        pairs: the records of both runs.
        metric: ``None`` for the mean of one number per record.
    """

    def __init__(self, pairs: Pairs, metric: Metric | None = None) -> None:
        self._pairs, self._metric = pairs, metric
        self.higher_is_better = metric is None or metric.higher_is_better
        self.bounds = None if metric is None else metric.bounds

    @cached_property
    def _compute(self) -> Values:
        return values_of(self._pairs, self._metric)

    @cached_property
    def smooth(self) -> Values | None:
        """The smoothed metric of both runs (:meth:`utils.metrics.base.Metric.smoothed`), if it has one."""
        found = [] if self._metric is None else [self._metric.smoothed(one) for one in self._pairs.records]
        known = [one for one in found if one is not None]
        return _by_unit(self._pairs, known) if len(known) == 2 else None

    def is_mean(self) -> bool:
        """Return whether the metric is the mean of the records (:func:`is_mean`)."""
        return is_mean(self._pairs, self._metric)

    def whole(self) -> tuple[float, float]:
        """Return the metric of all records of both runs."""
        return self._compute(np.ones(self._pairs.total))

    def gaps(self) -> tuple[Gaps, float] | None:
        """Return the margins of both runs, and the relative change per share of samples that change; or ``None``."""
        pairs, metric, found = self._pairs, self._metric, None
        if metric is not None and pairs.target.shape == pairs.baseline.shape and np.array_equal(*pairs.codes):
            found = metric.gaps(*pairs.records, pairs.codes[1])
        if found is None and pairs.margins is not None:
            found = Gaps(*pairs.margins, self.changed(), pairs.sample_units)
        if found is None:
            return None
        if self.bounds is not None:
            return found, (self.bounds[1] - self.bounds[0]) / abs(self.whole()[1])
        effect = math.nan if metric is None else metric.effect(*pairs.records)
        return (found, effect) if math.isfinite(effect) else None

    def changed(self) -> Array:
        """Return for each sample of both runs whether its value differs, N booleans.

        A record may have columns that do not affect the metric, such as figures at other cuts. Samples with another
        number of records than one count as changed if any record differs.
        """
        pairs, changed = self._pairs, self._pairs.changed.copy()
        single = len(pairs.target) == len(pairs.baseline) == len(changed)
        if self._metric is not None and self.bounds is not None and single:
            for place in np.flatnonzero(changed).tolist():
                one, other = (
                    _number(self._metric.weighing(records[place : place + 1]), np.ones(1)) for records in pairs.records
                )
                changed[place] = one != other
        return changed

    def smooth_drift(self) -> float:
        """Return the relative change of the smoothed metric, or else of the metric."""
        target, reference = (self.smooth or self._compute)(np.ones(self._pairs.total))
        return (target - reference) / abs(reference)

    def without(self, seed: int) -> Floats:
        """Return both runs' metric, smoothed where possible, without each group of units in turn; groups x 2."""
        total, compute = self._pairs.total, self.smooth or self._compute
        group = np.random.default_rng(seed).permutation(total) % min(total, GROUPS)
        return np.array([compute((group != one).astype(np.float64)) for one in range(min(total, GROUPS))])


def values_of(pairs: Pairs, metric: Metric | None) -> Values:
    """Return the function that computes both runs' metric from one weight per unit; NaN where it has no value."""
    return _by_unit(pairs, [_mean(one) if metric is None else metric.weighing(one) for one in pairs.records])


def _by_unit(pairs: Pairs, value: Sequence[Callable[[Array], float]]) -> Values:
    ours, theirs = pairs.codes

    def compute(weights: Floats) -> tuple[float, float]:
        return _number(value[0], weights[ours]), _number(value[1], weights[theirs])

    return compute


def _mean(records: Array) -> Callable[[Array], float]:
    return lambda weights: float(np.average(records.astype(np.float64), weights=weights))


def _number(weighed: Callable[[Array], float], weights: Floats) -> float:
    try:
        with np.errstate(all="ignore"):
            return float(weighed(weights))
    except (ArithmeticError, ValueError):  # no value for these weights
        return math.nan


def is_mean(pairs: Pairs, metric: Metric | None) -> bool:
    """Return whether the metric is the weighted mean of one number per record, of the same records in both runs.

    It is tested with three weightings of the records of both runs. Without a metric the answer is yes.
    """
    plain = all(each.ndim == 1 and each.dtype.kind in "biuf" for each in pairs.records)
    if not plain or not pairs.matched or not len(pairs.target):
        return False
    if metric is None:
        return True
    rng = np.random.default_rng(0)
    for records in pairs.records:
        value, mean = metric.weighing(records), _mean(records)
        for _ in range(3):
            weights = rng.integers(0, 4, len(records)).astype(np.float64)
            weights[0] += 1
            if not math.isclose(_number(value, weights), mean(weights), rel_tol=1e-9, abs_tol=1e-12):
                return False
    return True


def _kurtosis(without: Floats) -> float:
    """Return the fourth moment over the squared variance of both runs' differences; NaN if all are equal.

    It is 3 for a normal distribution, and the groups over the changes more for rare changes of one size.
    """
    drifts = without[:, 0] - without[:, 1]
    squares = (drifts - drifts.mean()) ** 2
    return float((squares**2).mean() / squares.mean() ** 2) if squares.any() else math.nan


def _of_differences(without: Floats, centre: float, drift: float, pairs: Pairs, tolerance: float) -> Estimate | None:
    """Return the interval around the change of the smoothed metric, ``centre``, that also holds the observed one."""
    groups = len(without)
    with np.errstate(all="ignore"):
        drifts = (without[:, 0] - without[:, 1]) / np.abs(without[:, 1])
    if groups < 2 or not np.isfinite(drifts).all() or np.ptp(np.sign(without[:, 1])):
        return None
    error = math.sqrt((groups - 1) * float(drifts.var()))
    pulls = (drifts.mean() - drifts) / (np.linalg.norm(drifts - drifts.mean()) or 1)  # influence of the groups
    lean = float((pulls**3).sum()) / 6  # the side of the longer tail is widened by Hall's correction (1992, Biometrika)
    quantile = Z * t_factor(1 + max(1, (groups - 1) // (1 if centre == drift else _LESS)))
    lower, upper = (error * (quantile + max(0.0, side * lean * (2 * quantile**2 + 1))) for side in (-1, 1))
    needed, room = None, tolerance - abs(centre)
    if abs(centre) + max(lower, upper) > tolerance and room > 0:
        needed = whole_samples((Z_DECIDES * error / room) ** 2 * pairs.sampled, pairs.sampled)
    return Estimate("differences", (min(centre - lower, drift), max(centre + upper, drift)), needed)


def t_factor(units: int) -> float:
    """Return Student's t over the normal quantile, at 97.5 %: how much wider an interval of few units is.

    Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5), within 0.1 % from 3 degrees of freedom on.
    """
    free = units - 1
    if free < 3:
        return (math.inf, 12.7062 / Z, 4.30265 / Z)[max(free, 0)]
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return 1 + math.fsum(term / free**power for power, term in enumerate(terms, start=1)) / Z


def whole_samples(number: float, samples: int) -> int | None:
    """Round up to two digits, and above the present number; ``None`` above :data:`LIMIT`."""
    number = max(number, samples + 1)
    if not number <= LIMIT:
        return None
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
