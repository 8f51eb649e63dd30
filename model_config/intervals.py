"""The statistics of the gate: intervals of a relative difference, and how many samples would decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from engine.base import Array

Floats = np.ndarray[Any, np.dtype[np.float64]]
Compute = Callable[[Array, Array], float]
"""From the records and the indices to take of them, with repetition, to the metric."""

RESAMPLES = 2000
"""Bootstrap resamples; a metric given by a function is computed twice as often."""

LIMIT = 10**8
"""More samples than this are not asked for."""

WIDEST = 1000.0
"""Ends of an interval are cut at plus and minus this: nothing is known of the relative difference there."""

_TAIL = 0.025
_Z = NormalDist().inv_cdf(1 - _TAIL)
# `needed` leaves room for chance on either side: four runs of five with so many samples decide, not every second one.
Z_DECIDES = _Z + NormalDist().inv_cdf(0.9)
_UNSEEN = -math.log(_TAIL)  # 3.69, the "rule of three" at 97.5 %
_CHUNK = 2_000_000  # indices held at once: 16 MB


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the pairs show; ``needed`` answers for the tolerance that was asked."""

    interval: tuple[float, float]
    bootstrap: tuple[float, float]
    needed: int | None
    p_value: float | None = None


def mean(records: Array, taken: Array) -> float:
    """Return the mean of the records; known by identity, so that it is resampled fast."""
    return float(records[taken].mean())


def score_interval(both: Floats, better: Floats, worse: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % score interval of the relative difference of two paired shares.

    The test of a ratio f = (both + better) / (both + worse) of Tang, Tang and Chan (2003) and of Nam and Blackwelder
    (2002), inverted, with a continuity correction of half a sample: enumerated over 50 to 50 000 samples, the gate is
    wrong in up to 5.3 % of the runs without it where few samples differ, and in at most 4.1 % with it. Where no sample
    differs, the upper end is about 4.8 / both; the exact bound of a share is 3.7 / n.

    Args:
        both, better, worse: how many samples are right in both runs, only in the target, only in the baseline; arrays
            of one shape, and ``both + worse`` at least 1 everywhere.

    Returns:
        Lower and upper ends, from -1 to :data:`WIDEST`.
    """
    return _solve(both, better, worse, _Z), _solve(both, better, worse, -_Z)


def _solve(both: Floats, better: Floats, worse: Floats, wanted: float) -> Floats:
    """Bisect for the ratio at which the corrected score is ``wanted``; the score falls as the ratio rises."""
    low = np.full(np.shape(both), math.log(1e-9))
    high = np.full(np.shape(both), math.log(1 + WIDEST))
    for _ in range(50):
        middle = (low + high) / 2
        distance, deviation = _score(both, better, worse, np.exp(middle))
        corrected = np.sign(distance) * np.maximum(np.abs(distance) - 0.5, 0)
        rises = corrected > wanted * deviation
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return np.asarray(np.expm1((low + high) / 2))


def _score(both: Floats, better: Floats, worse: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """Return how far the counts are from a ratio of the shares, in samples, and its standard deviation if it is true.

    The deviation takes the most likely shares of better and worse samples under that ratio: ``v`` solves the quadratic
    equation where the derivative of the multinomial likelihood is 0, and ``w`` follows from the ratio.
    """
    seen = both + better + worse
    a = (1 + ratio) * seen
    b = (both + worse) * (ratio * ratio - 1) - better - worse
    root = np.sqrt(np.maximum(b * b - 4 * a * worse * (1 - ratio), 0))
    v = np.maximum((root - b) / (2 * a), np.maximum(0, 1 - ratio))
    w = np.maximum((ratio - 1 + v) / ratio, 0)
    distance = (both + better - ratio * (both + worse)) / np.sqrt(ratio)
    return distance, np.sqrt(seen * (v + w))


def of_flips(target: Array, baseline: Array, tolerance: float, seed: int) -> Evidence:
    """Weigh records that are right or wrong, by how many flip."""
    target, baseline = target.astype(bool), baseline.astype(bool)
    total = len(target)
    both = int(np.count_nonzero(target & baseline))
    better, worse = int(np.count_nonzero(target)) - both, int(np.count_nonzero(baseline)) - both
    low, high = (float(end) for end in score_interval(_array(both), _array(better), _array(worse)))
    p_value = _mcnemar(better, worse)
    if p_value > 2 * _TAIL:
        low, high = min(low, 0.0), max(high, 0.0)
    shares = np.array([both, better, worse, total - both - better - worse]) / total
    drawn = np.random.default_rng(seed).multinomial(total, shares, size=RESAMPLES)
    bootstrap = _percentiles(drawn[:, 0] + drawn[:, 1], drawn[:, 0] + drawn[:, 2], 1.0)
    interval = min(low, bootstrap[0]), max(high, bootstrap[1])
    return Evidence(interval, bootstrap, _needed_flips(both, better, worse, tolerance, total), p_value)


def _needed_flips(both: int, better: int, worse: int, tolerance: float, total: int) -> int | None:
    """Return at how many samples the score interval would decide, if half a flip more on both sides were the rates."""
    counts = _array(both), _array(better + 0.5), _array(worse + 0.5)
    drift = (better - worse) / (both + worse)
    bounds = [1 + tolerance, 1 - tolerance] if abs(drift) < tolerance else [1 + math.copysign(tolerance, drift)]
    growth = 0.0
    for bound in bounds:
        distance, deviation = (abs(float(part)) for part in _score(*counts, _array(max(bound, 1e-9))))
        if distance < 1e-12:
            return None
        # `growth` times the samples: distance * growth - 1/2 must reach z * deviation * sqrt(growth).
        half = Z_DECIDES * deviation
        growth = max(growth, ((half + math.sqrt(half * half + 2 * distance)) / (2 * distance)) ** 2)
    return whole_samples(growth * total, total)


def _mcnemar(better: int, worse: int) -> float:
    """Return the two-sided exact p-value: twice the smaller tail of a binomial distribution with even odds."""
    flips, fewer = better + worse, min(better, worse)
    whole = math.lgamma(flips + 1) - flips * math.log(2)
    tail = math.fsum(math.exp(whole - math.lgamma(k + 1) - math.lgamma(flips - k + 1)) for k in range(fewer + 1))
    return min(1.0, 2 * tail)


def of_resamples(
    target: Array, baseline: Array, reference: float, tolerance: float, compute: Compute, seed: int
) -> Evidence:
    """Weigh records of any kind, by a paired bootstrap."""
    total = len(target)
    bootstrap = _percentiles(*_resample(target, baseline, compute, seed), reference)
    hidden = min(_hidden(target, baseline, compute) / abs(reference), WIDEST)
    interval = max(bootstrap[0] - hidden, -WIDEST), min(bootstrap[1] + hidden, WIDEST)
    drift = compute(target, np.arange(total)) / reference - 1
    margin = abs(abs(drift) - tolerance)
    # One more sample that moves by the full range, so that equal records do not promise certainty.
    half = math.hypot((bootstrap[1] - bootstrap[0]) / 2, _Z * hidden / _UNSEEN) * Z_DECIDES / _Z
    # half / sqrt(growth) + hidden / growth must come down to the margin.
    growth = ((half + math.sqrt(half * half + 4 * hidden * margin)) / (2 * margin)) ** 2 if margin else math.inf
    known = max(map(abs, bootstrap)) < WIDEST and hidden < WIDEST
    return Evidence(interval, bootstrap, whole_samples(growth * total, total) if known else None)


def _resample(target: Array, baseline: Array, compute: Compute, seed: int) -> tuple[Floats, Floats]:
    """Return the metric of both runs over the same resamples."""
    total = len(target)
    rng = np.random.default_rng(seed)
    # Resamples are drawn from the sorted pairs: the order of the samples does not change them.
    columns = np.concatenate([target.reshape(total, -1), baseline.reshape(total, -1)], axis=1)
    order = np.lexsort(columns.T)
    if compute is not mean:
        both = [
            (compute(target, taken), compute(baseline, taken))
            for taken in (order[rng.integers(0, total, total)] for _ in range(RESAMPLES))
        ]
        values = np.array(both, dtype=np.float64)
        return values[:, 0], values[:, 1]
    # Both records of a sample side by side, so that one look-up fetches both.
    together = target[order] + 1j * baseline[order]
    rows = max(1, _CHUNK // total)
    means = [
        together[rng.integers(0, total, (min(rows, RESAMPLES - start), total))].mean(axis=1)
        for start in range(0, RESAMPLES, rows)
    ]
    values = np.concatenate(means)
    return values.real, values.imag


def _hidden(target: Array, baseline: Array, compute: Compute) -> float:
    """Return by how much samples of a kind not seen could move the metric.

    The range of the records includes 0, which a sample that goes wholly wrong gets. For a mean it is the unseen share
    times the range. For any other metric four samples (3.69 is the share times n), spread evenly over the ranks of the
    target's records, are moved to either end of the range, column by column, and the largest change counts.
    """
    total = len(target)
    columns = target.reshape(total, -1)
    around = np.concatenate([columns, baseline.reshape(total, -1), np.zeros((1, columns.shape[1]))])
    low, high = around.min(axis=0), around.max(axis=0)
    if compute is mean:
        return float((1 - _TAIL ** (1 / total)) * (high - low)[0])
    whole = np.arange(total)
    before = compute(target, whole)
    moves = math.ceil(_UNSEEN)
    changes = []
    for column in range(columns.shape[1]):
        rows = np.argsort(columns[:, column], kind="stable")[(2 * np.arange(moves) + 1) * total // (2 * moves)]
        for end in (low[column], high[column]):
            moved = columns.copy()
            moved[rows, column] = end
            changes.append(abs(compute(moved.reshape(target.shape), whole) - before))
    return float(np.nan_to_num(changes, nan=math.inf).max())


def _percentiles(target: Array, baseline: Array, reference: float) -> tuple[float, float]:
    """Return the 95 % percentile interval of the relative difference.

    A resample without one (the metric is NaN, or the baseline is 0 or of the other sign) may be anything: it counts at
    both ends.
    """
    good = np.isfinite(target) & np.isfinite(baseline) & (baseline * reference > 0)
    drift = np.divide(target, baseline, out=np.ones(len(good)), where=good) - 1
    low = np.quantile(np.where(good, drift, -WIDEST), _TAIL)
    high = np.quantile(np.where(good, drift, WIDEST), 1 - _TAIL)
    return max(float(low), -WIDEST), min(float(high), WIDEST)


def wilson(rate: float, samples: int, reference: float) -> tuple[float, float]:
    """Return the interval of a share, relative to a reference that is taken as exact."""
    spread = _Z * math.sqrt(rate * (1 - rate) / samples + (_Z / (2 * samples)) ** 2)
    centre, shrink = rate + _Z**2 / (2 * samples), 1 + _Z**2 / samples
    return (centre - spread) / shrink / reference - 1, (centre + spread) / shrink / reference - 1


def _array(number: float) -> Floats:
    return np.asarray(number, dtype=np.float64)


def whole_samples(number: float, samples: int) -> int | None:
    """Round up to two digits, to more than there are; ``None`` above :data:`LIMIT`."""
    number = max(number, samples + 1)
    if not number <= LIMIT:
        return None
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
