"""The statistics of the gate: intervals of a relative difference, and how many samples would decide.

Here are records that are right or wrong, and means; :mod:`model_config.judge.resampling` has every other metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from engine import Array

Floats = np.ndarray[Any, np.dtype[np.float64]]

RESAMPLES = 2000
"""Bootstrap resamples of flips and means."""

LIMIT = 10**8
"""More samples than this are not asked for."""

WIDEST = 1000.0
"""Ends of an interval are cut at plus and minus this: nothing is known of the relative difference there."""

TAIL = 0.025
Z = NormalDist().inv_cdf(1 - TAIL)
# `needed` leaves room for chance on either side: four runs of five with so many samples decide, not every second one.
Z_DECIDES = Z + NormalDist().inv_cdf(0.9)
UNSEEN = -math.log(TAIL)  # 3.69, the "rule of three" at 97.5 %
_CHUNK = 2_000_000  # indices held at once: 16 MB


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the pairs show; ``needed`` answers for the tolerance that was asked."""

    interval: tuple[float, float]
    bootstrap: tuple[float, float]
    needed: int | None
    p_value: float | None = None


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
    return _solve(both, better, worse, Z), _solve(both, better, worse, -Z)


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
    if p_value > 2 * TAIL:
        low, high = min(low, 0.0), max(high, 0.0)
    shares = np.array([both, better, worse, total - both - better - worse]) / total
    drawn = np.random.default_rng(seed).multinomial(total, shares, size=RESAMPLES)
    bootstrap = percentiles(drawn[:, 0] + drawn[:, 1], drawn[:, 0] + drawn[:, 2], 1.0)
    interval = min(low, bootstrap[0]), max(high, bootstrap[1])
    return Evidence(interval, bootstrap, _needed_flips(both, better, worse, tolerance, total), p_value)


def _needed_flips(both: float, better: float, worse: float, tolerance: float, total: int) -> int | None:
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


def of_grouped_flips(target: Array, baseline: Array, units: Array, count: int, tolerance: float, seed: int) -> Evidence:
    """Weigh records that are right or wrong and belong to units, within which they may flip together.

    The interval is the widest of four. The score interval with all counts divided by the design effect of the flips:
    the sum over units of their net flips squared over the flips (Rao and Scott 1992: so many independent flips have
    that variance). The same at the seen difference for what no unit shows: whole units flip at once, and there are as
    many as records over their size-weighted mean size. A t-interval of the ratio of totals with the units' residuals
    (Cochran 1977, 6.3), for few units. The bootstrap of units.
    """
    ours, theirs, both, size = (
        np.bincount(units, weights=column, minlength=count).astype(np.float64)
        for column in (target, baseline, target * baseline, np.ones(len(units)))
    )
    better, worse, right = float((ours - both).sum()), float((theirs - both).sum()), float(both.sum())
    net = ours - theirs
    most = float((size**2).sum() / size.sum())
    effect = max(1.0, float((net**2).sum()) / (better + worse)) if better + worse else most
    drift = (better - worse) / (right + worse)
    seen = score_interval(*(_array(part / effect) for part in (right, better, worse)))
    unseen = score_interval(_array(max(right, 1.0) / most), _array(0), _array(0))
    bootstrap = percentiles(*_resample(ours, theirs, seed), 1.0)
    half = t_factor(count) * Z * _ratio_error(ours, theirs)
    low = min(float(seen[0]), drift + float(unseen[0]), drift - half, bootstrap[0])
    high = max(float(seen[1]), drift + float(unseen[1]), drift + half, bootstrap[1])
    p_value = _sign_flips(net)
    if p_value > 2 * TAIL:
        low, high = min(low, 0.0), max(high, 0.0)
    total = len(target)
    asked = [_needed_flips(right / effect, better / effect, worse / effect, tolerance, total)]
    if abs(drift) < tolerance:
        # What is not seen comes on top of the seen difference, so less is left of the tolerance.
        asked.append(_needed_flips(right / most, 0, 0, tolerance - abs(drift), total))
    needed = None if None in asked else max(number for number in asked if number is not None)
    return Evidence((max(low, -WIDEST), min(high, WIDEST)), bootstrap, needed, p_value)


def _ratio_error(ours: Floats, theirs: Floats) -> float:
    """Return the standard error of the ratio of two totals over units, from the units' residuals."""
    count, whole = len(ours), theirs.sum()
    residual = ours - ours.sum() / whole * theirs
    return float(math.sqrt(count / (count - 1) * float((residual**2).sum())) / whole) if count > 1 else math.inf


def _sign_flips(net: Floats) -> float:
    """Return the two-sided exact p-value of the sum of the units' net flips, were each as likely the other way round.

    McNemar's exact test, with units in place of samples: of ``m`` units with ``k`` net flips each the sum's
    characteristic function is cos(k t) ** m, and the probabilities are its Fourier transform.
    """
    sizes, units = np.unique(np.abs(net[net != 0]).astype(np.int64), return_counts=True)
    reach = int((sizes * units).sum())
    if not reach:
        return 1.0
    if len(sizes) == 1:  # exactly McNemar's
        up = int(np.count_nonzero(net > 0))
        return _mcnemar(up, int(units[0]) - up)
    angle = 2 * np.pi * np.arange(reach + 1) / (2 * reach + 1)
    wave = np.ones(reach + 1)
    for size, many in zip(sizes.tolist(), units.tolist(), strict=True):
        wave *= np.cos(size * angle) ** many
    chance = np.fft.irfft(wave, 2 * reach + 1)  # of the sums 0, 1, ..., reach, and the negative ones behind
    beyond = chance[round(abs(net.sum())) : reach + 1].sum()
    return float(min(1.0, max(0.0, 2 * beyond)))


def t_factor(units: int) -> float:
    """Return how much wider an interval is for few units: Student's t over the normal quantile, at 97.5 %.

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


def of_means(
    target: Array,
    baseline: Array,
    units: Array | None,
    count: int,
    tolerance: float,
    bounds: tuple[float, float] | None,
    seed: int,
) -> Evidence:
    """Weigh the means of real-valued records, by a paired bootstrap of units.

    The bootstrap sees how the paired differences spread. It is made wider by what the samples cannot show: with a
    probability of 2.5 % a share 1 - 0.025 ** (1 / units) of the population, or more, is of kinds that are not among
    them. How far their records move is not in the data, so it is assumed: by the whole of ``bounds`` at most, where the
    metric has any; otherwise, on average over such a kind, by no more than the records' root mean square (a record
    vanishes or doubles), at most twice their mean size, or than the largest difference that was seen.
    """
    total = len(target)
    gap = np.abs(target - baseline).max()
    typical = max(_size(target), _size(baseline), float(gap))
    width = bounds[1] - bounds[0] if bounds is not None else math.inf
    move = width if math.isfinite(width) else typical
    uneven, reference = 1.0, float(baseline.mean())
    ours, theirs = target, baseline
    if units is not None:
        size, ours, theirs = (
            np.bincount(units, weights=column, minlength=count) for column in (np.ones(total), target, baseline)
        )
        uneven = float((size**2).sum() * count / total**2)
    bootstrap = percentiles(*_resample(ours, theirs, seed), reference)
    drift = (float(target.mean()) - reference) / abs(reference)
    hidden = min((1 - TAIL ** (1 / count)) * move * uneven / abs(reference), WIDEST)
    return widened(drift, bootstrap, hidden, count, total, tolerance)


def _size(records: Floats) -> float:
    """Return the root mean square of records, or twice their mean size where a few of them make it larger."""
    return min(float(np.sqrt((records**2).mean())), 2 * float(np.abs(records).mean()))


def widened(
    drift: float,
    bootstrap: tuple[float, float],
    hidden: float,
    units: int,
    samples: int,
    tolerance: float,
    error: float = 0.0,
) -> Evidence:
    """Return the evidence of a bootstrap, with what is hidden added at both ends and a wider spread for few units.

    Args:
        drift: the relative difference that was found.
        bootstrap: its 95 % interval.
        hidden: by how much units not seen may move it.
        units, samples: how many there are.
        tolerance: the one that was asked for.
        error: a standard error of the drift found in another way, 0 for none; the wider counts.
    """
    factor = t_factor(units)
    ends = [max(0.0, drift - bootstrap[0], Z * error), max(0.0, bootstrap[1] - drift, Z * error)]
    sides = [min(factor * end, 2 * WIDEST) if units > 1 else 2 * WIDEST for end in ends]
    interval = max(drift - sides[0] - hidden, -WIDEST), min(drift + sides[1] + hidden, WIDEST)
    margin = abs(abs(drift) - tolerance)
    # One more unit that moves as far as it can, so that equal records do not promise certainty.
    half = math.hypot(sum(sides) / 2, Z * hidden / UNSEEN) * Z_DECIDES / Z
    # half / sqrt(growth) + hidden / growth must come down to the margin.
    growth = ((half + math.sqrt(half * half + 4 * hidden * margin)) / (2 * margin)) ** 2 if margin else math.inf
    known = max(map(abs, bootstrap)) < WIDEST and hidden < WIDEST
    return Evidence(interval, bootstrap, whole_samples(growth * samples, samples) if known else None)


def _resample(target: Array, baseline: Array, seed: int) -> tuple[Floats, Floats]:
    """Return the means of both runs over the same resamples of units."""
    total = len(target)
    rng = np.random.default_rng(seed)
    # Resamples are drawn from the sorted pairs: the order of the samples does not change them. Both of a unit side by
    # side, so that one look-up fetches both.
    order = np.lexsort((target, baseline))
    together = target[order] + 1j * baseline[order]
    rows = max(1, _CHUNK // total)
    means = [
        together[rng.integers(0, total, (min(rows, RESAMPLES - start), total))].mean(axis=1)
        for start in range(0, RESAMPLES, rows)
    ]
    values = np.concatenate(means)
    return values.real, values.imag


def percentiles(target: Array, baseline: Array, reference: float) -> tuple[float, float]:
    """Return the 95 % percentile interval of the relative difference.

    A resample without one (the metric is NaN, or the baseline is 0 or of the other sign) may be anything: it counts at
    both ends.
    """
    good = np.isfinite(target) & np.isfinite(baseline) & (baseline * reference > 0)
    drift = np.divide(target, baseline, out=np.ones(len(good)), where=good) - 1
    drift = np.copysign(1.0, reference) * drift  # relative to the reference's size
    low = np.quantile(np.where(good, drift, -WIDEST), TAIL)
    high = np.quantile(np.where(good, drift, WIDEST), 1 - TAIL)
    return max(float(low), -WIDEST), min(float(high), WIDEST)


def wilson(rate: float, samples: int, reference: float) -> tuple[float, float]:
    """Return the interval of a share, relative to a reference that is taken as exact."""
    spread = Z * math.sqrt(rate * (1 - rate) / samples + (Z / (2 * samples)) ** 2)
    centre, shrink = rate + Z**2 / (2 * samples), 1 + Z**2 / samples
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
