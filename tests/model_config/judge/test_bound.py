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
    estimate,
    is_mean,
    poisson_lower,
    poisson_upper,
    t_factor,
    values_of,
    whole_samples,
)
from model_config.judge.pairs import Pairs
from utils.metrics import MeanMetric, Metric, RecordMetric, TopK
from utils.metrics.clicks import RECORD as CLICK, Clicks
from utils.metrics.f1 import RECORD, Accuracy, MacroF1, Matthews
from utils.metrics.frames import RECORD as FRAME, FrameScores
from utils.metrics.gaps import Gaps, tail_share
from utils.metrics.graph_labels import RECORD as PROPERTY, GraphLabels
from utils.metrics.ranking import Ranking
from utils.metrics.segmentation import MeanIoU
from utils.metrics.speakers import SpeakerVerification
from utils.metrics.text.answers import RECORD as QUESTION, AnswerF1
from utils.metrics.text.edits import RECORD as LINE, CharacterErrorRate
from utils.metrics.verification import RECORD as PERSONS, Verification

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
@pytest.mark.parametrize(
    ("size", "group"),
    [(30, 1), (100, 1), (300, 1), (100, 5), pytest.param(1000, 5, marks=pytest.mark.long), (1000, 20)],
)
def test_the_bound_of_margins_holds(size: int, group: int, deviation: str) -> None:
    for scale in (0.002, 0.05, 0.5):
        for hard in (False, True) if size // group >= 30 else (False,):
            make = classified(size, scale, deviation, group, hard)
            change = change_of(make)
            bounds = [estimated(make(np.random.default_rng(run)), TopK()).bound for run in range(RUNS)]
            assert sum(bound >= change for bound in bounds) >= ENOUGH, (scale, hard)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("scale", [0.002, 0.01, 0.05, 0.15, 0.5])
def test_the_bound_of_50_units_of_20_holds_for_a_change_to_the_worse(scale: float, hard: bool) -> None:
    make = classified(1000, scale, "constant", 20, hard)
    change = change_of(make)
    bounds = [estimated(make(np.random.default_rng(run)), TopK()).bound for run in range(1000)]
    assert sum(bound >= change for bound in bounds) >= 940


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


def test_many_changed_predictions_are_paired_differences() -> None:
    """The differences are then narrower; the curve of the margins stays."""
    make = classified(1000, 0.5, "constant")
    found = [estimated(make(np.random.default_rng(run)), TopK()) for run in range(10)]
    assert {one.method for one in found} == {"differences"}
    assert all(one.tail for one in found)
    few = estimated(classified(1000, 0.05, "constant")(np.random.default_rng(0)), TopK())
    assert few.method == "margins"


def test_a_changed_prediction_counts_for_any_margin() -> None:
    ratios = np.full(100, 1e-6)
    assert tail_share(ratios, np.arange(100))[0] < 1e-6
    ratios[:10] = 1.0
    assert tail_share(ratios, np.arange(100)) == (0.1, 10.0)
    assert tail_share(ratios, np.arange(100) // 10) == (0.1, 1.0)


def test_a_margin_that_is_infinite_in_one_run_counts_as_a_change() -> None:
    ours, theirs = np.array([np.inf, 1.0, 2.0, np.inf]), np.array([np.inf, np.inf, 2.0, 1.0])
    gaps = Gaps(ours, theirs, np.zeros(4, np.bool_), np.arange(4))
    assert gaps.ratios().tolist() == [0, 1, 0, 1]


def test_number_of_sufficient_samples() -> None:
    make = classified(100, 0.002, "normal")
    one = next(
        found for run in range(50) if (found := estimated(make(np.random.default_rng(run)), TopK())).needed is not None
    )
    assert one.needed is not None
    assert one.bound > TOLERANCE
    assert 100 < one.needed < 3000


# ------------------------------------------------------------------------------------- margins of other kinds of metric


Drawn = tuple[Array, Array, dict[str, Any]]
"""Records of the target and of the baseline, and further arguments of :class:`Pairs`."""


def deviated(rng: np.random.Generator, values: Array, scale: float, deviation: str, true: Array | None = None) -> Array:
    """Return scores of another run: rounded, so that larger ones deviate more; a constant deviation is to the worse.

    Args:
        true: whether higher scores are better; default: all.
    """
    moved = scale * (0.5 + np.abs(values)) * DEVIATIONS[deviation](rng, values.size).reshape(values.shape)
    return values + np.where(true, -moved, moved) if true is not None else values - moved


def both(records: Array, field: str, moved: Array) -> tuple[Array, Array]:
    """Return the records of both runs, which differ in a field."""
    target = records.copy()
    target[field] = moved
    return target, records


def clicks(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """Probabilities of users with five rows each, some of whom click more often."""
    users = np.arange(size) // 5
    taste = rng.normal(size=users[-1] + 1)[users]
    records = np.zeros(size, CLICK)
    records["same"] = rng.random(size) < 1 / (1 + np.exp(1.5 - taste))
    logits = rng.normal(records["same"] * 1.2 + 0.5 * taste)
    records["score"] = 1 / (1 + np.exp(-logits))
    moved = 1 / (1 + np.exp(-deviated(rng, logits, scale, deviation, records["same"])))
    return *both(records, "score", moved), {"units": (users, users), "count": int(users[-1]) + 1}


def trials(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """Pairs of people of whom each is in about eight; some people are easier to mistake."""
    people = max(8, size // 4)
    records = np.zeros(size, PERSONS)
    records["first"], records["second"] = rng.integers(0, people, (2, size))
    records["same"] = rng.random(size) < 0.5
    records["second"] = np.where(records["same"], records["first"], records["second"])
    records["fold"] = rng.integers(0, 10, size)
    records["same"] = records["first"] == records["second"]
    likeness = rng.normal(size=people)
    records["score"] = rng.normal(2.5 * records["same"]) + 0.3 * likeness[records["first"]]
    return *both(records, "score", deviated(rng, records["score"], scale, deviation, records["same"])), {}


def frames(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """Scores of recordings of 20 frames each, which resemble their neighbours."""
    recordings = np.arange(size) // 20
    records = np.zeros(size, FRAME)
    loud = np.repeat(rng.normal(size=-(-size // 5)), 5)[:size]
    records["true"] = loud + 0.5 * rng.normal(size=size) > 0.3
    noise = rng.normal(size=size) + rng.normal(size=recordings[-1] + 1)[recordings]
    records["score"] = 0.5 + 0.2 * loud + 0.1 * noise
    moved = deviated(rng, records["score"], scale, deviation, records["true"])
    return *both(records, "score", moved), {"units": (recordings, recordings), "count": int(recordings[-1]) + 1}


def properties(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """Three properties of a graph, of which some are unknown."""
    records = np.zeros((size, 3), PROPERTY)
    records["same"], records["known"] = rng.random((2, size, 3)) < 0.6
    records["score"] = 0.5 + 0.3 * rng.normal(records["same"] - 0.5)
    return *both(records, "score", deviated(rng, records["score"], scale, deviation, records["same"])), {}


def with_margins(target: Array, baseline: Array, ours: Array, theirs: Array) -> Drawn:
    known = {"margins": (ours, theirs), "sample_units": np.arange(len(ours)), "changed": target != baseline}
    return target, baseline, known


def classes(rng: np.random.Generator, size: int, scale: float, deviation: str, count: int = 5) -> Drawn:
    """Scores of classes, the last of which is rare."""
    labels = np.minimum(rng.integers(0, 2 * count - 1, size) % count, rng.integers(0, count + 3, size))
    scores = rng.normal(size=(size, count))
    scores[np.arange(size), labels] += 2
    moved = deviated(rng, scores, scale, deviation, np.arange(count) == labels[:, None])
    found = [Matthews().records(one, labels, None) for one in (moved, scores)]
    return with_margins(*(one.values for one in found), *(one.margins for one in found))


def binary(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    return classes(rng, size, scale, deviation, 2)


def lines(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """Lines of twelve steps, each of which is read right if its score is above 0."""
    steps = rng.normal(4, 2, (size, 12))
    moved = deviated(rng, steps, scale, deviation)
    records = np.zeros((2, size), LINE)
    for one, scores in zip(records, (moved, steps), strict=True):
        one["edits"], one["length"] = (scores < 0).sum(1), 12
    return with_margins(*records, *(np.abs(scores).min(1) for scores in (moved, steps)))


def answers(rng: np.random.Generator, size: int, scale: float, deviation: str) -> Drawn:
    """The best of four spans of a text, with their F1."""
    logits = rng.normal(size=(size, 4)) * 2 + [3, 1, 0, 0]
    moved = deviated(rng, logits, scale, deviation, np.arange(4) == 0)
    values = np.sort(rng.random((size, 4)), axis=1)[:, ::-1] > rng.random((size, 4))
    records = np.zeros((2, size), QUESTION)
    for one, scores in zip(records, (moved, logits), strict=True):
        one["f1"] = values[np.arange(size), scores.argmax(1)]
    margins = [np.diff(np.sort(scores, axis=1)[:, -2:])[:, 0] for scores in (moved, logits)]
    return with_margins(*records, *margins)


KINDS: dict[str, tuple[Callable[..., Drawn], Metric, int, float]] = {
    "auc": (clicks, Clicks(), 300, TOLERANCE),
    "accuracy of pairs": (trials, Verification(), 300, TOLERANCE),
    "auc of pairs": (trials, Verification("auc"), 300, TOLERANCE),
    "eer": (trials, SpeakerVerification(), 1000, 0.006),
    "f1 of frames": (frames, FrameScores("f1"), 3000, TOLERANCE),
    "auc of frames": (frames, FrameScores("auc"), 10_000, TOLERANCE),
    "accuracy of properties": (properties, GraphLabels("accuracy"), 3000, TOLERANCE),
    "macro f1": (classes, MacroF1(), 1000, 0.002),
    "matthews": (binary, Matthews(), 300, TOLERANCE),
    "cer": (lines, CharacterErrorRate(), 1000, TOLERANCE),
    "f1 of answers": (answers, AnswerF1(), 1000, TOLERANCE),
}
"""Generator, metric, and a number of records with the bound of scores rounded to 11 bits."""


def drawn(kind: str, run: int, size: int, scale: float, deviation: str = "normal") -> tuple[Pairs, Metric]:
    make, metric, *_ = KINDS[kind]
    target, baseline, further = make(np.random.default_rng(run), size, scale, deviation)
    return Pairs(target, baseline, metric.name, **further), metric


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_of_other_margins_holds(kind: str, deviation: str) -> None:
    for scale in (0.002, 0.1):
        pairs, metric = drawn(kind, RUNS, 200_000, scale, deviation)
        one, other = values_of(pairs, metric)(np.ones(pairs.total))
        change = abs(one - other) / abs(other)
        for size in (100, 600):
            held = 0
            for run in range(RUNS):
                pairs, metric = drawn(kind, run, size, scale, deviation)
                found = estimate(pairs, Valued(pairs, metric), TOLERANCE)
                held += found is None or found.bound >= change
            assert held >= ENOUGH, (scale, size)


def test_the_power_of_other_margins() -> None:
    """So many records bound scores rounded to 11 bits by the tolerance, or by what they can at best."""
    for kind, (_, _, size, limit) in KINDS.items():
        found = [estimated(*drawn(kind, run, size, 2**-12)) for run in range(10)]
        narrower = kind == "f1 of frames"  # with a spread threshold
        assert "auc" in kind or {one.method for one in found} == {"differences" if narrower else "margins"}
        assert all(one.tail for one in found)
        assert sorted(one.bound for one in found)[7] < limit, kind


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


def segmented(rng: np.random.Generator, count: int, scale: float) -> Pairs:
    """Images of 32 x 32 pixels and three classes, with the scores of two runs, some images harder than others."""
    found = []
    for _ in range(count):
        real = rng.integers(0, 3, (4, 4)).repeat(8, 0).repeat(8, 1)
        scores = rng.normal(size=(3, 32, 32)) * rng.uniform(0.5, 1.5) + 2 * (np.arange(3)[:, None, None] == real)
        moved = scores + scale * rng.normal(size=scores.shape)
        found.append((moved.argmax(0), scores.argmax(0), real))
    ours, theirs, truths = zip(*found, strict=True)
    target, baseline = (MeanIoU().records(one, truths) for one in (ours, theirs))
    units = np.asarray(target.samples), np.asarray(baseline.samples)
    return Pairs(target.values, baseline.values, "mIoU", units=units, count=count)


@pytest.mark.slow
@pytest.mark.long
def test_the_bound_of_segmentation_holds_without_margins() -> None:
    """Some pixels of nearly every image change, so 30 images are enough for the paired differences."""
    for scale in (0.002, 0.05):
        one, other = values_of(segmented(np.random.default_rng(RUNS), 3000, scale), MeanIoU())(np.ones(3000))
        change = abs(one - other) / other
        found = [estimated(segmented(np.random.default_rng(run), 30, scale), MeanIoU()) for run in range(RUNS)]
        assert {one.method for one in found} == {"differences"}
        assert sum(one.bound >= change for one in found) >= ENOUGH, scale
        if scale < 0.01:
            assert np.median([one.bound for one in found]) < TOLERANCE


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
    other[:15, 2] += 0.1  # average precision
    other[0, 0] += 0.1  # nDCG
    margins = (np.ones(100), np.ones(100))
    changed = (ranks != other).any(axis=1)
    pairs = Pairs(other, ranks, "ndcg10", samples=100, margins=margins, sample_units=np.arange(100), changed=changed)
    assert Valued(pairs, Ranking()).changed().tolist() == [True] + [False] * 99
    assert Valued(pairs, Ranking("map")).changed().sum() == 15
    assert estimated(pairs, Ranking()).bound < estimated(pairs, Ranking("map")).bound
    assert Valued(pairs).changed().sum() == 15
    classes = np.zeros(3, RECORD)
    classes["right"] = (True, False, False)
    moved = classes.copy()
    moved["predicted"][1], moved["right"][2] = 1, True
    differ = np.array([False, True, True])
    pairs = Pairs(moved, classes, "top1", margins=(np.ones(3), np.ones(3)), sample_units=np.arange(3), changed=differ)
    assert Valued(pairs, Accuracy()).changed().tolist() == [False, False, True]
