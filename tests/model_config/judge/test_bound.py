"""What two runs say about other data: the 95 % bound holds, and is as narrow as each method promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2, t as student

from engine import Array
from model_config.judge.bound import (
    Estimate,
    Valued,
    changes_of_margins,
    estimate,
    is_mean,
    poisson_lower,
    poisson_upper,
    t_factor,
    tail_share,
    values_of,
    whole_samples,
)
from model_config.judge.pairs import Pairs
from utils.metrics import MeanMetric, Metric, RecordMetric, TopK
from utils.metrics.f1 import RECORD, Accuracy
from utils.metrics.ranking import Ranking

TOLERANCE = 0.001
RUNS = 200
"""Simulated comparisons of a case; the bound must hold in 95 % of them, less what chance explains once in 10 000."""

ENOUGH = int(binom.ppf(1e-4, RUNS, 0.95))


class Ratio(RecordMetric):
    """Errors over words, as in a word error rate: a metric that is not a mean of its records."""

    name = "wer"
    higher_is_better = False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
        return np.stack([predictions, targets], axis=1)

    def value(self, records: Array, weights: Array) -> float:
        return float(records[:, 0] @ weights / (records[:, 1] @ weights))


class Score(MeanMetric):
    name = "score"

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
        return np.asarray(predictions)


def estimated(pairs: Pairs, metric: Metric | None = None) -> Estimate:
    found = estimate(pairs, Valued(pairs, metric), TOLERANCE)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------------------ margins


DEVIATIONS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tail": lambda rng, size: rng.standard_t(2, size),
    "constant": lambda rng, size: np.ones(size),
}


def classified(size: int, scale: float, deviation: str, group: int = 1, hard: bool = False) -> Callable[..., Pairs]:
    """Two runs of a classifier: margins of which some are small, deviations of ``scale``, in units of ``group``."""

    def make(rng: np.random.Generator, size: int = size) -> Pairs:
        units = np.arange(size) // group
        shared = rng.normal(size=(2, units[-1] + 1))
        margin = 2 + 2 * (rng.normal(size=size) + shared[0][units] * (group > 1))
        moved = scale * DEVIATIONS[deviation](rng, size) * np.exp(0.7 * shared[1][units] * (group > 1))
        moved = moved * 3 / (1 + np.abs(margin)) if hard else moved
        ours, theirs = margin + moved, margin
        target, baseline = (ours > 0) * 1.0, (theirs > 0) * 1.0
        return Pairs(
            target,
            baseline,
            "top1",
            units=(units, units) if group > 1 else None,
            count=int(units[-1]) + 1 if group > 1 else 0,
            margins=(ours, theirs),
            sample_units=units,
            changed=target != baseline,
        )

    return make


def change_of(make: Callable[..., Pairs]) -> float:
    """Return the relative change over a population of a million samples."""
    pairs = make(np.random.default_rng(1), 1_000_000)
    return float(abs(pairs.target.mean() - pairs.baseline.mean()) / pairs.baseline.mean())


@pytest.mark.slow
@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize(("size", "group"), [(30, 1), (100, 1), (300, 1), (100, 5), (1000, 5), (1000, 20)])
def test_the_bound_of_margins_holds(size: int, group: int, deviation: str) -> None:
    for scale in (0.002, 0.05, 0.5):
        for hard in (False, True) if size // group >= 30 else (False,):
            make = classified(size, scale, deviation, group, hard)
            change = change_of(make)
            bounds = [estimated(make(np.random.default_rng(run)), TopK()).bound for run in range(RUNS)]
            assert sum(bound >= change for bound in bounds) >= ENOUGH, (scale, hard)


def test_300_samples_bound_a_deviation_of_float16() -> None:
    """Scores of about 2, rounded to 11 bits; counting would take 3700 samples without a changed prediction."""
    make = classified(300, 2 * 2**-11, "normal")
    found = [estimated(make(np.random.default_rng(run)), TopK()) for run in range(20)]
    assert {one.method for one in found} == {"margins"}
    assert sorted(one.bound for one in found)[15] < TOLERANCE
    counted = Pairs(np.ones(300), np.ones(300), "top1")
    assert estimated(counted, TopK()).bound > 0.01


def test_an_injected_change_of_half_a_percent_is_detected_with_1000_samples() -> None:
    seen = 0
    for run in range(100):
        rng = np.random.default_rng(run)
        pairs = classified(1000, 0.002, "normal")(rng)
        lost = rng.random(1000) < 0.005
        target = np.where(lost, 0.0, pairs.target)
        margin = np.where(lost, -1.0, pairs.margins[0] if pairs.margins else 0.0)
        drifted = Pairs(
            target,
            pairs.baseline,
            "top1",
            margins=(margin, pairs.margins[1]) if pairs.margins else None,
            sample_units=pairs.sample_units,
            changed=target != pairs.baseline,
        )
        seen += estimated(drifted, TopK()).bound > TOLERANCE
    assert seen >= 90


def test_a_changed_prediction_counts_for_any_margin() -> None:
    ratios = np.full(100, 1e-6)
    assert tail_share(ratios, np.arange(100))[0] < 1e-6
    ratios[:10] = 1.0
    assert tail_share(ratios, np.arange(100)) == (0.1, 10.0)
    assert tail_share(ratios, np.arange(100) // 10) == (0.1, 1.0)


def test_a_margin_that_is_infinite_in_one_run_counts_as_a_change() -> None:
    ours, theirs = np.array([np.inf, 1.0, 2.0, np.inf]), np.array([np.inf, np.inf, 2.0, 1.0])
    pairs = Pairs(
        np.ones(4),
        np.ones(4),
        "ndcg10",
        margins=(ours, theirs),
        sample_units=np.arange(4),
        changed=np.zeros(4, np.bool_),
    )
    ratios, _ = changes_of_margins(pairs)
    assert ratios.tolist() == [0, 1, 0, 1]


def test_number_of_sufficient_samples() -> None:
    make = classified(100, 0.002, "normal")
    one = next(
        found for run in range(50) if (found := estimated(make(np.random.default_rng(run)), TopK())).needed is not None
    )
    assert one.needed is not None
    assert one.bound > TOLERANCE
    assert 100 < one.needed < 3000


# ------------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize("rate", [0.0, 0.002, 0.02])
def test_the_bound_of_counts_holds(rate: float) -> None:
    held = 0
    for run in range(RUNS):
        rng = np.random.default_rng(run)
        right = rng.random(400) < 0.9
        lost = rng.random(400) < rate
        pairs = Pairs((right & ~lost) * 1.0, right * 1.0, "top1")
        held += estimated(pairs).bound >= rate
    assert held >= ENOUGH


@pytest.mark.parametrize("count", [0, 1, 5.5, 20, 300])
def test_the_limits_of_a_count(count: float) -> None:
    assert poisson_upper(count) == pytest.approx(chi2.ppf(0.975, 2 * (count + 1)) / 2, rel=0.011)
    exact = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    assert poisson_lower(count) == pytest.approx(exact, rel=0.05, abs=0.02)


# -------------------------------------------------------------------------------------------------------- differences


Sampler = Callable[[np.random.Generator, int], tuple[Array, Array]]


def scores(drift: float, tail: int) -> Sampler:
    """Scores of 1 to 2 that move by 1 % with a heavy tail, and by ``drift`` of their mean."""

    def draw(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        baseline = rng.uniform(1, 2, size)
        return baseline + 0.01 * rng.standard_t(tail, size) + drift * 1.5, baseline

    return draw


@pytest.mark.parametrize("tail", [3, 30])
@pytest.mark.parametrize("drift", [0.0, 0.002, -0.02])
@pytest.mark.parametrize("size", [30, 300])
def test_the_bound_of_paired_differences_holds(size: int, drift: float, tail: int) -> None:
    draw = scores(drift, tail)
    pairs = [Pairs(*draw(np.random.default_rng(run), size), "score") for run in range(RUNS)]
    found = [estimated(one, Score()) for one in pairs]
    assert {one.method for one in found} == {"differences"}
    assert sum(one.bound >= abs(drift) for one in found) >= ENOUGH
    assert np.median([one.bound for one in found]) < abs(drift) + 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("speakers", "drift"), [(40, 0.0), (40, 0.02), (300, 0.05)])
def test_the_bound_of_a_ratio_over_units_holds(speakers: int, drift: float) -> None:
    held = 0
    for run in range(RUNS):
        rng = np.random.default_rng(run)
        units = np.repeat(np.arange(speakers), 10)
        words = rng.integers(8, 25, len(units))
        rate = rng.beta(5, 15, speakers)[units]
        errors = rng.binomial(words, rate)
        more = rng.binomial(errors, np.minimum(1, 2 * drift * (rng.random(speakers) < 0.5)[units]))
        target, baseline = (np.stack([one, words], 1) for one in (errors + more, errors))
        pairs = Pairs(target, baseline, "wer", units=(units, units), count=speakers)
        held += estimated(pairs, Ratio()).bound >= drift
    assert held >= ENOUGH


def test_equal_values_have_a_bound_of_zero() -> None:
    values = np.linspace(20, 40, 6)
    assert estimated(Pairs(values, values, "psnr"), Score()).bound == 0
    moved = estimated(Pairs(values * (1 + 4e-6), values, "psnr"), Score())
    assert moved.bound < 1e-5


def test_no_estimate() -> None:
    one = Pairs(np.ones(40), np.ones(40), "top1", units=(np.zeros(40, int), np.zeros(40, int)), count=1)
    assert estimate(one, Valued(one), TOLERANCE) is None
    zero = Pairs(np.zeros(40), np.zeros(40), "top1")
    assert estimate(zero, Valued(zero), TOLERANCE) is None
    signs = Pairs(np.array([1.0, -1, 0.5]), np.array([1.0, -1, 0.4]), "score")
    assert estimate(signs, Valued(signs, Score()), TOLERANCE) is None


def test_is_mean() -> None:
    class Root(Score):
        def value(self, records: Array, weights: Array) -> float:
            return math.sqrt(super().value(records, weights))

    pairs = Pairs(np.linspace(0, 2, 50), np.linspace(0, 3, 50), "x")
    assert is_mean(pairs, None)
    assert is_mean(pairs, Score())
    assert not is_mean(pairs, Root())
    assert not is_mean(Pairs(np.ones((3, 2)), np.ones((3, 2)), "x"), None)
    units = np.array([0, 1]), np.array([1, 0])
    assert not is_mean(Pairs(np.ones(2), np.ones(2), "x", units=units, count=2), None)


def test_records_are_prepared_once_for_all_weightings() -> None:
    made = []

    class Counting(Ratio):
        def weighing(self, records: Array) -> Callable[[Array], float]:
            made.append(records)
            return super().weighing(records)

    records = np.random.default_rng(0).integers(1, 9, (200, 2))
    estimated(Pairs(records, records, "wer"), Counting())
    assert len(made) <= 6
    assert values_of(Pairs(records, records, "wer"), Ratio())(np.ones(200))[0] == pytest.approx(
        records[:, 0].sum() / records[:, 1].sum()
    )


@pytest.mark.parametrize("units", [2, 3, 4, 10, 100])
def test_student(units: int) -> None:
    assert t_factor(units) == pytest.approx(student.ppf(0.975, units - 1) / 1.959964, rel=2e-3)


def test_whole_samples() -> None:
    assert whole_samples(3688.9, 360) == 3700
    assert whole_samples(10, 360) == 370
    assert whole_samples(1e12, 360) is None


def test_only_changes_of_the_value_are_counted() -> None:
    """Other ranks below the cut, and another wrong class, are other records with the same value."""
    rng = np.random.default_rng(0)
    ranks = rng.random((100, 8))
    other = ranks.copy()
    other[:30, 2] += 0.1  # average precision
    other[0, 0] += 0.1  # nDCG
    margins = (np.ones(100), np.ones(100))
    changed = (ranks != other).any(axis=1)
    pairs = Pairs(other, ranks, "ndcg10", samples=100, margins=margins, sample_units=np.arange(100), changed=changed)
    assert Valued(pairs, Ranking()).changed().tolist() == [True] + [False] * 99
    assert Valued(pairs, Ranking("map")).changed().sum() == 30
    assert estimated(pairs, Ranking()).bound < estimated(pairs, Ranking("map")).bound
    assert Valued(pairs).changed().sum() == 30
    classes = np.zeros(3, RECORD)
    classes["right"] = (True, False, False)
    moved = classes.copy()
    moved["predicted"][1], moved["right"][2] = 1, True
    differ = np.array([False, True, True])
    pairs = Pairs(moved, classes, "top1", margins=(np.ones(3), np.ones(3)), sample_units=np.arange(3), changed=differ)
    assert Valued(pairs, Accuracy()).changed().tolist() == [False, False, True]
