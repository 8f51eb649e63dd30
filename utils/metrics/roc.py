"""The ROC curve of scored pairs: its area, equal error rate, detection cost, and TAR at a fixed FAR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array

DRAWS = 200
"""Draws of people for an interval; its ends are the 2.5 % and the 97.5 % quantiles."""


class Ordered(NamedTuple):
    """Pairs by falling score.

    Attributes:
        same: N bool, pairs of one person. places: N, indices of the pairs in the records.
        ends: the last pair of each score. levels: these scores, falling.
    """

    same: Array
    places: Array
    ends: Array
    levels: Array


class Curve(NamedTuple):
    """The ROC curve from (0, 0) to (1, 1): sums of weights of the accepted pairs of two people and of one.

    Attributes:
        false, true: increasing, one value per threshold.
        pairs: the weight of all pairs of two people.
    """

    false: Array
    true: Array
    pairs: float


def in_order(records: Array) -> Ordered:
    """Return pairs by falling score.

    Args:
        records: N of a structured dtype with ``score`` (float64, higher is more similar) and ``same`` (bool). NaN
            scores are wrong at every threshold: the lowest for one person, the highest for two people.
    """
    score = records["score"].copy()
    lost = np.isnan(score)
    score[lost] = np.where(records["same"][lost], -math.inf, math.inf)
    places = np.argsort(-score, kind="stable")
    falling = score[places]
    ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)) if len(falling) else np.empty(0, np.int64)
    return Ordered(records["same"][places], places, ends, falling[ends])


def roc_curve(ordered: Ordered, weights: Array) -> Curve:
    """Return the curve of pairs with the given weights, float64 N, in the order of the records."""
    own = weights[ordered.places]
    true, false = (np.cumsum(np.where(kind, own, 0.0))[ordered.ends] for kind in (ordered.same, ~ordered.same))
    zero = np.zeros(1)
    return Curve(np.concatenate([zero, false]), np.concatenate([zero, true]), float(false[-1]) if len(false) else 0.0)


def area(curve: Curve) -> float:
    """Return the area under the curve, ties counted half; NaN if all pairs are of one kind."""
    whole = curve.false[-1] * curve.true[-1]
    if not whole:
        return math.nan
    return float((np.diff(curve.false) * (curve.true[1:] + curve.true[:-1])).sum() / 2 / whole)


def equal_error(curve: Curve) -> float:
    """Return the rate at which false acceptance equals false rejection, interpolated linearly; or NaN."""
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    false, missed = _rates(curve)
    behind = _meeting(curve)
    over, under = missed[behind - 1] - false[behind - 1], false[behind] - missed[behind]
    share = over / (over + under)
    return float(false[behind - 1] + share * (false[behind] - false[behind - 1]))


def equal_error_threshold(ordered: Ordered, curve: Curve) -> float:
    """Return the greatest score where the false acceptance is at least the false rejection; NaN if undefined."""
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    return float(ordered.levels[_meeting(curve) - 1])


def least_cost(curve: Curve, p_target: float) -> float:
    """Return the minimum detection cost over all thresholds, relative to a trivial system; both errors cost 1.

    The cost is ``p_target * missed + (1 - p_target) * falsely accepted`` as in NIST's speaker recognition evaluations;
    a system that accepts all, or none, costs the smaller of the two shares.

    Args:
        curve: the ROC curve.
        p_target: share of pairs of one person, above 0 and below 1.

    Returns:
        0 to 1; NaN if all pairs are of one kind.
    """
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    false, missed = _rates(curve)
    return float((p_target * missed + (1 - p_target) * false).min() / min(p_target, 1 - p_target))


def _rates(curve: Curve) -> tuple[Array, Array]:
    """Return the rates of false acceptance and of false rejection."""
    return curve.false / curve.false[-1], 1 - curve.true / curve.true[-1]


def _meeting(curve: Curve) -> int:
    """Return the first point where false acceptance is at least false rejection; never point 0, which accepts none."""
    false, missed = _rates(curve)
    return int(np.argmax(false >= missed))


def accepted_at(curve: Curve, far: float) -> float:
    """Return the maximum share of one person's pairs that is accepted with at most ``far`` of two people's.

    NaN if there are fewer than 1 / ``far`` of those, because then the threshold is ambiguous.
    """
    if not curve.true[-1] or curve.pairs * far < 1 - 1e-9:
        return math.nan
    allowed = np.flatnonzero(curve.false <= far * curve.pairs * (1 + 1e-12))
    return float(curve.true[allowed[-1]] / curve.true[-1])


def accepted_intervals(records: Array, fars: Sequence[float]) -> list[tuple[float, float]]:
    """Return the ends of 95 % intervals of :func:`accepted_at`; NaN if it is NaN, or for most draws.

    People are drawn with replacement, and a pair is weighted by the draws of both of its people.

    Args:
        records: as for :func:`in_order`, with ``first`` and ``second``: int64, the two people.
        fars: rates of false acceptance.
    """
    order = in_order(records)
    people, places = np.unique(np.stack([records["first"], records["second"]]), return_inverse=True)
    first, second = places.reshape(2, -1)
    all_of_them = roc_curve(order, np.ones(len(records)))
    defined = [far for far in fars if not math.isnan(accepted_at(all_of_them, far))]
    values: dict[float, list[float]] = {far: [] for far in defined}
    chance = np.random.default_rng(0)
    for _ in range(DRAWS if defined else 0):
        drawn = np.bincount(chance.integers(0, len(people), len(people)), minlength=len(people)).astype(np.float64)
        curve = roc_curve(order, np.where(records["same"], drawn[first], drawn[first] * drawn[second]))
        for far in defined:
            values[far].append(accepted_at(curve, far))
    return [_quantiles(values.get(far, [])) for far in fars]


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if 2 * len(known) <= DRAWS:
        return math.nan, math.nan
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    return low, high
