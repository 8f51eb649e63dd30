"""The ROC curve of scored pairs: its area, its equal error rate, what a rate of false acceptance leaves."""

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
        same: N bool, which are one person. places: N, where they are among the records.
        ends: the last pair of each score. levels: these scores, falling.
    """

    same: Array
    places: Array
    ends: Array
    levels: Array


class Curve(NamedTuple):
    """The ROC curve from (0, 0) to (1, 1): sums of weights of the accepted pairs of two people and of one.

    Attributes:
        false, true: rising, one value per threshold.
        pairs: how many pairs of two people there are, by weight.
    """

    false: Array
    true: Array
    pairs: float


def in_order(records: Array) -> Ordered:
    """Put pairs in order.

    Args:
        records: N of a structured dtype with ``score`` (float64, higher is more alike) and ``same`` (bool). A score of
            NaN is wrong at every threshold: the lowest of one person's, the highest of two people's.
    """
    score = records["score"].copy()
    lost = np.isnan(score)
    score[lost] = np.where(records["same"][lost], -math.inf, math.inf)
    places = np.argsort(-score, kind="stable")
    falling = score[places]
    ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)) if len(falling) else np.empty(0, np.int64)
    return Ordered(records["same"][places], places, ends, falling[ends])


def roc_curve(ordered: Ordered, weights: Array) -> Curve:
    """Return the curve of pairs that count ``weights`` times, float64 N, in the order of the records."""
    own = weights[ordered.places]
    true, false = (np.cumsum(np.where(kind, own, 0.0))[ordered.ends] for kind in (ordered.same, ~ordered.same))
    zero = np.zeros(1)
    return Curve(np.concatenate([zero, false]), np.concatenate([zero, true]), float(false[-1]) if len(false) else 0.0)


def area(curve: Curve) -> float:
    """Return the area under the curve, equal scores counted half; NaN where all pairs are of one kind."""
    whole = curve.false[-1] * curve.true[-1]
    if not whole:
        return math.nan
    return float((np.diff(curve.false) * (curve.true[1:] + curve.true[:-1])).sum() / 2 / whole)


def equal_error(curve: Curve) -> float:
    """Return the rate at which false acceptance and false rejection meet, on the line between two points; or NaN."""
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    false, missed = _rates(curve)
    behind = _meeting(curve)
    over, under = missed[behind - 1] - false[behind - 1], false[behind] - missed[behind]
    share = over / (over + under)
    return float(false[behind - 1] + share * (false[behind] - false[behind - 1]))


def equal_error_threshold(ordered: Ordered, curve: Curve) -> float:
    """Return the greatest score at which no fewer are falsely accepted than rejected; NaN where there is none."""
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    return float(ordered.levels[_meeting(curve) - 1])


def least_cost(curve: Curve, p_target: float) -> float:
    """Return the least detection cost over all thresholds, both kinds of error costing 1, over that of no system.

    The cost is ``p_target * missed + (1 - p_target) * falsely accepted`` as in NIST's speaker recognition evaluations,
    and one that accepts all, or none, has the smaller of the two shares.

    Args:
        p_target: how often a pair is of one person, above 0 and below 1.

    Returns:
        0 to 1; NaN where all pairs are of one kind.
    """
    if not curve.false[-1] or not curve.true[-1]:
        return math.nan
    false, missed = _rates(curve)
    return float((p_target * missed + (1 - p_target) * false).min() / min(p_target, 1 - p_target))


def _rates(curve: Curve) -> tuple[Array, Array]:
    """Return the rates of false acceptance and of false rejection."""
    return curve.false / curve.false[-1], 1 - curve.true / curve.true[-1]


def _meeting(curve: Curve) -> int:
    """Return the first point where false acceptance is no rarer; never the first of all: there nothing is accepted."""
    false, missed = _rates(curve)
    return int(np.argmax(false >= missed))


def accepted_at(curve: Curve, far: float) -> float:
    """Return the largest share of one person's pairs that is accepted while at most ``far`` of two people's are.

    NaN where there are fewer than 1 / ``far`` of those: then no threshold can be told from a stricter one.
    """
    if not curve.true[-1] or curve.pairs * far < 1 - 1e-9:
        return math.nan
    allowed = np.flatnonzero(curve.false <= far * curve.pairs * (1 + 1e-12))
    return float(curve.true[allowed[-1]] / curve.true[-1])


def accepted_intervals(records: Array, fars: Sequence[float]) -> list[tuple[float, float]]:
    """Return the ends of 95 % intervals of :func:`accepted_at`; NaN where that is, or where nearly no draw tells it.

    Everybody is drawn with replacement, and a pair counts as often as both of its people.

    Args:
        records: as :func:`in_order` takes them, with ``first`` and ``second`` too: int64, who both are.
    """
    order = in_order(records)
    people, places = np.unique(np.stack([records["first"], records["second"]]), return_inverse=True)
    first, second = places.reshape(2, -1)
    all_of_them = roc_curve(order, np.ones(len(records)))
    told = [far for far in fars if not math.isnan(accepted_at(all_of_them, far))]
    values: dict[float, list[float]] = {far: [] for far in told}
    chance = np.random.default_rng(0)
    for _ in range(DRAWS if told else 0):
        drawn = np.bincount(chance.integers(0, len(people), len(people)), minlength=len(people)).astype(np.float64)
        curve = roc_curve(order, np.where(records["same"], drawn[first], drawn[first] * drawn[second]))
        for far in told:
            values[far].append(accepted_at(curve, far))
    return [_quantiles(values.get(far, [])) for far in fars]


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if 2 * len(known) <= DRAWS:
        return math.nan, math.nan
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    return low, high
