"""How far the outputs of two runs are from changing what a metric counts, and how far they part.

Most metrics with margins store one per sample (:attr:`~utils.metrics.base.Records.margins`). Where the records have the
scores, the margins follow from the records of both runs: from a threshold that all samples define together
(:func:`of_threshold`), or as the gap between a positive and a negative record (:func:`of_classes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine import Array

POINTS = 60
"""Points of :func:`curve_of`."""

_FEWEST, _SHARE = 6, 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Margins of two runs over the same samples.

    Attributes:
        target, baseline: float64 N, the margins of both runs, in one unit.
        changed: N booleans, whether what the metric counts differs.
        units: N, or N x R, integers: the independent unit that a margin is of, or the R units.
        weight: number of margins that each one stands for, of which it is a sample.
        places: N, or N x R, positions of the records that a margin is of; ``None``: one per sample, in order.
    """

    target: Array
    baseline: Array
    changed: Array
    units: Array
    weight: float = 1.0
    places: Array | None = None

    @property
    def changes(self) -> float:
        """Number of changed margins, estimated if these are a sample."""
        return float(np.count_nonzero(self.changed)) * self.weight

    def ratios(self) -> Array:
        """Return the deviation of each margin over the margin, float64 N, at least 1 where it changed.

        A margin of 0, or an infinite one, in both runs has a ratio of 0 unless it changed. A margin that is infinite in
        one run only has a ratio of 1.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.abs(self.target - self.baseline) / np.abs(self.baseline)
        ratios = np.nan_to_num(ratios, nan=0.0, posinf=1.0)
        ratios[np.isinf(self.target) != np.isinf(self.baseline)] = 1.0  # the deviation is unknown
        found: Array = np.where(self.changed, np.maximum(ratios, 1.0), ratios)
        return found


def curve_of(ratios: Array) -> tuple[tuple[float, float], ...]:
    """Return some of the ratios above 0 with their shares, evenly spaced in the logarithm of the share."""
    falling = np.sort(ratios)[::-1]
    count = int(np.count_nonzero(falling > 0))
    places = np.unique(np.geomspace(1, max(count, 1), POINTS).astype(np.int64))[:count]
    return tuple((float(falling[place - 1]), place / len(ratios)) for place in places.tolist())


def tail_share(ratios: Array, units: Array) -> tuple[float, float]:
    """Return the expected share of samples with a ratio of 1 or more, and the number of independent ratios used.

    The number is divided by the design effect of the units among the ratios that were used: the sum over units of their
    squared counts over the count (Rao and Scott 1992). Of ratios with several units each, the excess over 1 adds up.

    Args:
        ratios: N. units: N, or N x R.
    """
    count = tail_size(len(ratios))
    beyond = int(np.count_nonzero(ratios >= 1))
    used = max(count, beyond)
    chosen = np.argsort(-ratios, kind="stable")[:used]
    level = min(1.0, float(ratios[chosen[-1]]))
    columns = units[chosen].reshape(used, -1).T
    excess = sum(float((np.unique(one, return_counts=True)[1] ** 2).sum()) / used - 1 for one in columns)
    return used / len(ratios) * level, used / (1 + excess)


def tail_size(count: int) -> int:
    """Return how many of the largest ratios define the tail: ``0.7 * sqrt(count)``, at least 6."""
    return min(count, max(_FEWEST, round(_SHARE * math.sqrt(count))))


def of_threshold(
    target: Array, baseline: Array, thresholds: Array | float, units: Array, places: Array | None = None
) -> Gaps | None:
    """Return the distances of scores from the threshold from which on they count; ``None`` if a score is NaN.

    Args:
        target, baseline: N scores of both runs.
        thresholds: of both runs; one, or N. It may depend on all samples, such as the one of the best accuracy: then
            use the baseline's. The best value at the target's own threshold, and the rate at which its two errors are
            equal, move by at most the share of scores that cross the baseline's.
        units: N, or N x R. places: positions of the scores' records, N; default: all in order.
    """
    ours, theirs = (one.astype(np.float64) for one in (target, baseline))
    if np.isnan(ours).any() or np.isnan(theirs).any():
        return None
    with np.errstate(invalid="ignore"):
        own, other = (_known(one - thresholds) for one in (ours, theirs))
    places = np.arange(len(ours)) if places is None else places
    return Gaps(own, other, (ours >= thresholds) != (theirs >= thresholds), units, places=places)


def of_classes(target: Array, baseline: Array, same: Array, units: Array, count: int = 0) -> Gaps | None:
    """Return the gaps between positive and negative records, for the area under a ROC curve.

    The area is the share of pairs of a positive and a negative record of which the positive one has the higher score.
    The pairs here are a sample of all: both kinds are shuffled, the less frequent one is repeated.

    Args:
        target, baseline: N scores of both runs. same: N booleans, the positive records. units: N, or N x R.
        count: number of pairs; default: that of the more frequent kind, so that no pair is repeated.

    Returns:
        A gap per pair with the units of both records; ``None`` if a score is NaN, or all records are of one kind.
    """
    rng = np.random.default_rng(0)
    kinds = [rng.permutation(np.flatnonzero(kind)) for kind in (same, ~same)]
    ours, theirs = (one.astype(np.float64) for one in (target, baseline))
    if not all(map(len, kinds)) or np.isnan(ours).any() or np.isnan(theirs).any():
        return None
    turns = np.arange(count or max(map(len, kinds)))
    positive, negative = (kind[turns % len(kind)] for kind in kinds)
    with np.errstate(invalid="ignore"):  # equal infinities
        own, other = (_known(one[positive] - one[negative]) for one in (ours, theirs))
    columns = units.reshape(len(units), -1)
    both = np.hstack([columns[positive], columns[negative]])
    weight = max(1.0, len(kinds[0]) * len(kinds[1]) / len(turns))
    return Gaps(own, other, np.sign(own) != np.sign(other), both, weight, np.stack([positive, negative], axis=1))


def _known(gaps: Array) -> Array:
    """Return gaps with 0 for those of equal infinities, which are NaN."""
    found: Array = np.nan_to_num(gaps, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return found
