"""The gate over units: groups of samples, paired differences, and metrics that are no means."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom, binomtest, t as student

from engine import Array, DataError
from model_config.judge import intervals, resampling
from model_config.judge.gate import Pairs, judge, read_pairs
from model_config.judge.resampling import is_mean, is_mean_of_samples, values_of
from model_config.results import Accuracy, Verdict
from utils.datasets.base import Batch
from utils.metrics import MeanMetric, Metric, RecordMetric, Records, TopK
from utils.pipeline.resume.records.arrays import ArrayRecordWriter

SPOKEN = np.dtype([("errors", "<i8"), ("words", "<i8")])
Make = Callable[[np.random.Generator], Pairs]


class SquaredError(MeanMetric):
    name = "mse"
    higher_is_better = False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
        return (np.asarray(predictions) - np.asarray(targets)) ** 2


class RootMeanSquareError(SquaredError):
    name = "rmse"

    def value(self, records: Array, weights: Array) -> float:
        return math.sqrt(super().value(records, weights))

    compute = RecordMetric.compute


class WordErrorRate(RecordMetric):
    name = "wer"
    higher_is_better = False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
        return np.array(list(zip(predictions, targets, strict=True)), SPOKEN)

    def value(self, records: Array, weights: Array) -> float:
        return float(records["errors"] @ weights) / float(records["words"] @ weights)


class F1(RecordMetric):
    name = "f1"

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
        return np.stack([predictions, targets], axis=1)

    def value(self, records: Array, weights: Array) -> float:
        said, true = records.T.astype(bool)
        return float(2 * weights[said & true].sum() / (weights[said].sum() + weights[true].sum()))


class Recall(RecordMetric):
    """Of detections: one record (found, there) per box, any number of boxes in a picture."""

    name = "recall"

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Records:
        raise NotImplementedError

    def value(self, records: Array, weights: Array) -> float:
        return float(records[:, 0] @ weights / (records[:, 1] @ weights))


def judged(pairs: Pairs, metric: Metric | None = None, **options: float) -> Accuracy:
    if metric is None:
        figures = float(pairs.target.mean()), float(pairs.baseline.mean())
    else:
        figures = values_of(pairs, metric)(np.ones(pairs.total))
    return judge(pairs, *figures, metric_of=metric, **options)


def verdicts(make: Make, runs: int, metric: Metric | None = None, **options: float) -> Counter[Verdict]:
    return Counter(judged(make(np.random.default_rng(run)), metric, **options).verdict for run in range(runs))


RUNS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 50
"""Simulated comparisons of a slow test; more of them in `.ci/long`, which takes its time."""


def at_most_five_percent(wrong: int, runs: int) -> bool:
    """A true rate of 5 % gives more once in ten thousand."""
    return wrong <= binom.ppf(1 - 1e-4, runs, 0.05)


# ------------------------------------------------------------------------------------------------ flips within groups


def grouped_flips(groups: int, size: int, rate: float, drift: float, base: float = 0.9) -> Make:
    """Groups whose samples are all right in one run and all wrong in the other, at equal rates without a drift."""

    def make(rng: np.random.Generator) -> Pairs:
        right = rng.random((groups, size)) < base
        fate = rng.random(groups)
        lost = fate < rate + max(-drift, 0) * base
        won = ~lost & (fate < 2 * rate + abs(drift) * base)
        target, baseline = right.copy(), right.copy()
        target[lost], baseline[lost] = False, True
        target[won], baseline[won] = True, False
        units = np.repeat(np.arange(groups), size)
        return Pairs(target.ravel() * 1.0, baseline.ravel() * 1.0, "top1", units=(units, units), count=groups)

    return make


@pytest.mark.parametrize("groups", [100, 1000])
@pytest.mark.parametrize("rate", [0.002, 0.02])
def test_flips_in_groups_of_twenty(groups: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    found = verdicts(grouped_flips(groups, 20, rate, 0.0), 60)
    assert at_most_five_percent(found[Verdict.FAIL], 60)
    alone = Counter(
        judged(Pairs(pairs.target, pairs.baseline, "top1")).verdict
        for pairs in (grouped_flips(groups, 20, 0.02, 0.0)(np.random.default_rng(run)) for run in range(30))
    )
    assert groups == 100 or alone[Verdict.FAIL] > 5, (
        "without the groups the same data fail: the test would show nothing"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drift", "wrong"),
    [(0.0005, Verdict.FAIL), (-0.0013, Verdict.PASS), (0.002, Verdict.PASS)],
)
@pytest.mark.long
def test_flips_in_groups_are_rarely_judged_wrong(drift: float, wrong: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    for groups, size in ((500, 20), (4000, 4), (20_000, 2)):
        for rate in (0.0, 0.01):
            found = verdicts(grouped_flips(groups, size, rate, drift), RUNS)
            assert at_most_five_percent(found[wrong], RUNS), (groups, size, rate)


@pytest.mark.slow
@pytest.mark.long
def test_groups_are_decided_where_there_are_enough() -> None:
    assert verdicts(grouped_flips(20_000, 4, 0.0, 0.0), 3) == {Verdict.PASS: 3}
    assert verdicts(grouped_flips(20_000, 4, 0.001, -0.01), 3) == {Verdict.FAIL: 3}
    few = judged(grouped_flips(300, 4, 0.0, 0.0)(np.random.default_rng(0)))
    assert few.verdict is Verdict.INCONCLUSIVE
    assert (few.samples, few.units) == (1200, 300)
    assert " of 1200 in 300 units; " in few.reason
    assert few.needed is not None
    assert few.needed > 10_000


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=10))
def test_the_test_of_grouped_flips_is_exact(net: list[int]) -> None:
    sizes = [abs(one) for one in net if one]
    sums = [sum(size if bits >> i & 1 else -size for i, size in enumerate(sizes)) for bits in range(2 ** len(sizes))]
    beyond = sum(abs(one) >= abs(sum(net)) for one in sums) / len(sums)
    assert intervals._sign_flips(np.array(net, float)) == pytest.approx(min(1.0, beyond if sum(net) else 1.0), abs=1e-9)


@given(st.integers(0, 20), st.integers(0, 20))
def test_units_of_one_flip_are_mcnemars(up: int, down: int) -> None:
    net = np.repeat([1.0, -1.0, 0.0], [up, down, 3])
    assert intervals._sign_flips(net) == pytest.approx(binomtest(up, up + down).pvalue if up + down else 1)


def test_students_t() -> None:
    for units in (2, 3, 4, 5, 10, 30, 1000):
        assert intervals.t_factor(units) == pytest.approx(student.ppf(0.975, units - 1) / 1.959964, rel=2e-3)
    assert intervals.t_factor(1) == math.inf


# ------------------------------------------------------------------------------------------------- means of real values


def regression(size: int, drift: float, noise: float, rare: float = 0.0, move: float = 0.0, group: int = 1) -> Make:
    """Squared errors with a mean of 1; ``rare`` of the units move by ``move``."""

    def make(rng: np.random.Generator) -> Pairs:
        baseline = np.repeat(rng.normal(size=size // group), group) ** 2
        target = baseline * (1 + drift + noise * rng.normal(size=size))
        target += move * np.repeat(rng.random(size // group) < rare, group)
        units = np.arange(size) // group
        return Pairs(target, baseline, "mse", units=(units, units), count=size // group)

    return make


def test_ten_thousand_nearly_equal_records_pass() -> None:
    assert verdicts(regression(10_000, 0.0, 1e-5), 5, SquaredError()) == {Verdict.PASS: 5}
    few = judged(regression(1000, 0.0, 1e-5)(np.random.default_rng(0)), SquaredError())
    assert few.verdict is Verdict.INCONCLUSIVE
    assert few.needed is not None
    assert few.needed > 1000


def test_a_drift_is_found_and_said_by_its_direction() -> None:
    up = judged(regression(10_000, 0.003, 1e-3)(np.random.default_rng(0)), SquaredError())
    assert (up.verdict, up.higher_is_better) == (Verdict.FAIL, False)
    assert "+0.30 %, worse (95 %: " in up.reason
    assert up.worse > up.better
    down = judged(regression(10_000, -0.003, 1e-3)(np.random.default_rng(0)), SquaredError())
    assert down.verdict is Verdict.FAIL
    assert "-0.30 %, better (95 %: " in down.reason
    assert down.better > down.worse


@pytest.mark.parametrize(("size", "events"), [(300, 1), (300, 3), (4000, 3), (4000, 5)])
def test_rare_large_differences_that_the_sample_may_not_hold(
    size: int, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So rare that a sample holds few or none; moves of up to the root mean square of the records, 1.7."""
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    move = max(1.0, 0.0011 * size / events)
    assert move < 1.8
    found = verdicts(regression(size, 0.0, 1e-5, events / size, move), 100, SquaredError())
    assert at_most_five_percent(found[Verdict.PASS], 100)


@pytest.mark.parametrize(("drift", "wrong"), [(0.0007, Verdict.FAIL), (0.0014, Verdict.PASS)])
def test_means_of_groups(drift: float, wrong: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    for group, size in ((10, 200), (10, 20_000)):
        found = verdicts(regression(size, drift, 1e-3, 0.002, 0.01, group), 30, SquaredError())
        assert at_most_five_percent(found[wrong], 30)


def test_bounds_are_what_a_record_can_move() -> None:
    class Overlap(MeanMetric):
        name, bounds = "iou", (0.0, 1.0)

        def records(self, predictions: Any, targets: Sequence[Any], contexts: Any) -> Array:
            return np.asarray(predictions)

    rng = np.random.default_rng(0)
    values = rng.uniform(0.01, 0.03, 8000)
    pairs = Pairs(values, values, "iou")
    assert judged(pairs, SquaredError()).verdict is Verdict.PASS
    assert judged(pairs, Overlap()).verdict is Verdict.INCONCLUSIVE  # a record may become 1, fifty times as large


# ------------------------------------------------------------------------------------------------------ other metrics


def speech(size: int, worse: float, changed: float, group: int = 1) -> Make:
    """Utterances of speakers; the target has so many more errors as a share of all, one in all some speakers say."""

    def make(rng: np.random.Generator) -> Pairs:
        words = rng.integers(8, 25, size)
        rate = np.repeat(rng.beta(5, 45, size // group), group)
        errors = rng.binomial(words, rate)
        moved = np.where(rng.random(size) < changed, rng.integers(-1, 2, size), 0)
        extra = np.repeat(rng.random(size // group) < worse * 1.6, group)
        metric, units = WordErrorRate(), np.arange(size) // group
        target, baseline = (metric.records(e, words, None) for e in (np.maximum(errors + moved + extra, 0), errors))
        return Pairs(target, baseline, "wer", units=(units, units), count=size // group)

    return make


def classes(size: int, missed: float, changed: float) -> Make:
    def make(rng: np.random.Generator) -> Pairs:
        true = rng.random(size) < 0.3
        said = np.where(rng.random(size) < 0.9, true, ~true)
        other = np.where(rng.random(size) < changed, rng.random(size) < 0.3, said) & (rng.random(size) >= missed)
        return Pairs(F1().records(other, true, None) * 1, F1().records(said, true, None) * 1, "f1")

    return make


def boxes(pictures: int, lost: float) -> Make:
    """Pictures with none to six boxes; the target reports each found box once more, in ever other numbers."""

    def make(rng: np.random.Generator) -> Pairs:
        there = rng.integers(0, 7, pictures)
        baseline_units = np.repeat(np.arange(pictures), there)
        found = rng.random(len(baseline_units)) < 0.8
        kept = found & (rng.random(len(found)) >= lost)
        rows = np.stack([kept, np.ones(len(kept))], axis=1)
        more = np.zeros((int(kept.sum()), 2))  # duplicates, which count for nothing here
        target = np.concatenate([rows, more])
        target_units = np.concatenate([baseline_units, baseline_units[kept]])
        baseline = np.stack([found, np.ones(len(found))], axis=1)
        return Pairs(target, baseline, "recall", units=(target_units, baseline_units), count=pictures)

    return make


CASES = [
    (speech(3000, 0.045, 0.004), WordErrorRate(), 0.05, Verdict.FAIL),
    (speech(3000, 0.055, 0.004), WordErrorRate(), 0.05, Verdict.PASS),
    (speech(12_000, 0.18, 0.004, 20), WordErrorRate(), 0.2, Verdict.FAIL),
    (speech(12_000, 0.22, 0.004, 20), WordErrorRate(), 0.2, Verdict.PASS),
    (classes(3000, 0.0, 0.002), F1(), 0.005, Verdict.FAIL),
    (classes(3000, 0.014, 0.002), F1(), 0.005, Verdict.PASS),
    (boxes(3000, 0.018), Recall(), 0.02, Verdict.FAIL),
    (boxes(3000, 0.022), Recall(), 0.02, Verdict.PASS),
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_any_metric_is_rarely_judged_wrong(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "RESAMPLES", 100)
    monkeypatch.setattr(resampling, "LEFT_OUT", 60)
    make, metric, tolerance, wrong = CASES[case]
    found = verdicts(make, 25, metric, tolerance=tolerance)
    assert at_most_five_percent(found[wrong], 25)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("case", range(len(CASES)))
def test_any_metric_is_rarely_judged_wrong_in_many_runs(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "RESAMPLES", 200)
    monkeypatch.setattr(resampling, "LEFT_OUT", 100)
    make, metric, tolerance, wrong = CASES[case]
    found = verdicts(make, RUNS, metric, tolerance=tolerance)
    assert at_most_five_percent(found[wrong], RUNS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "metric", "expected"),
    [
        (speech(6000, 0.0, 0.0), WordErrorRate(), Verdict.PASS),
        (speech(6000, 0.3, 0.0), WordErrorRate(), Verdict.FAIL),
        (classes(6000, 0.0, 0.0), F1(), Verdict.PASS),
        (classes(6000, 0.2, 0.0), F1(), Verdict.FAIL),
        (boxes(6000, 0.0), Recall(), Verdict.PASS),
        (boxes(6000, 0.2), Recall(), Verdict.FAIL),
    ],
)
def test_any_metric_is_decided_where_there_are_enough(make: Make, metric: Metric, expected: Verdict) -> None:
    result = judged(make(np.random.default_rng(0)), metric, tolerance=0.02)
    assert result.verdict is expected
    assert result.units == 6000
    assert (", worse (" in result.reason) == (expected is Verdict.FAIL)
    assert " of 6000 units differ; tolerance 2 %" in result.reason
    few = judged(make(np.random.default_rng(0)), metric, tolerance=0.0001)
    assert few.verdict is (Verdict.INCONCLUSIVE if expected is Verdict.PASS else Verdict.FAIL)


def test_resamples_agree_with_the_known_error_of_a_ratio() -> None:
    """The bootstrap of a word error rate against the linearised standard error of the ratio of two totals."""
    pairs = speech(3000, 0.05, 0.3)(np.random.default_rng(0))
    result = judged(pairs, WordErrorRate(), tolerance=0.01)
    ours, theirs = pairs.target["errors"].astype(float), pairs.baseline["errors"].astype(float)
    half = 1.96 * intervals._ratio_error(ours, theirs)  # the same words in both runs cancel
    assert result.bootstrap is not None
    assert (result.bootstrap[1] - result.bootstrap[0]) / 2 == pytest.approx(half, rel=0.1)


def test_units_that_are_all_alike_are_not_certain() -> None:
    right = np.ones((40, 2))
    for metric in (F1(), Recall()):
        result = judged(Pairs(right, right, metric.name), metric)
        assert (result.verdict, result.bootstrap) == (Verdict.INCONCLUSIVE, (0.0, 0.0))
        assert result.needed is not None
        assert result.needed > 3000


def test_one_unit_decides_nothing() -> None:
    one = np.zeros(40, np.int64)
    for records, metric in ((np.ones(40), None), (np.linspace(1, 2, 40), None), (np.ones((40, 2)), Recall())):
        result = judged(Pairs(records, records, "x", units=(one, one), count=1), metric)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "nan" not in result.reason


def test_whether_a_metric_is_a_mean_is_tried() -> None:
    pairs = Pairs(np.linspace(0, 2, 50), np.linspace(0, 3, 50), "x")
    assert is_mean(pairs, None)
    assert is_mean(pairs, SquaredError())
    assert not is_mean(pairs, RootMeanSquareError())
    assert is_mean_of_samples(TopK())
    assert not is_mean_of_samples(RootMeanSquareError())
    assert not is_mean_of_samples(F1())
    assert not is_mean(Pairs(np.ones((3, 2)), np.ones((3, 2)), "x"), None)
    units = np.array([0, 1]), np.array([1, 0])
    assert not is_mean(Pairs(np.ones(2), np.ones(2), "x", units=units, count=2), None)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=2, max_size=40), st.randoms())
def test_the_order_of_grouped_records_does_not_matter(rows: list[tuple[int, bool, bool]], random: Random) -> None:
    rows = [*rows, (0, True, True)]
    ends = []
    for _ in range(2):
        units = np.array([row[0] for row in rows])
        target, baseline = (np.array([row[i] for row in rows], float) for i in (1, 2))
        ends.append(judged(Pairs(target, baseline, "top1", units=(units, units), count=5)))
        random.shuffle(rows)
    assert ends[0].interval == pytest.approx(ends[1].interval)
    assert ends[0].interval is not None
    assert ends[0].p_value == pytest.approx(ends[1].p_value)


# ---------------------------------------------------------------------------------------------------------------- files


def written(path: Path, metric: str = "recall", lost: str = "", units: bool = False, offset: int = 0) -> Path:
    with ArrayRecordWriter(path, metric) as writer:
        for start in range(0, 6, 2):
            names = [f"{start}.png", f"{start + 1}.png"]
            good = [i for i, name in enumerate(names) if name != lost]
            count = [start + i + offset for i in good]
            values = np.array([[i, 1.0] for n in count for i in range(n)]).reshape(-1, 2)
            samples = np.repeat(np.arange(len(good)), count)
            groups = [f"u{start % 4}"] * 2 if units else None
            writer.write(Batch(names, None, names, groups), Records(values, samples), good)
    return path


def test_pairs_of_arrays(tmp_path: Path) -> None:
    pairs = read_pairs(written(tmp_path / "t.npz", offset=1), written(tmp_path / "b.npz"))
    assert (pairs.metric_name, pairs.count, pairs.samples) == ("recall", 6, 6)
    assert pairs.units is not None
    assert np.bincount(pairs.units[0]).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.bincount(pairs.units[1], minlength=6).tolist() == [0, 1, 2, 3, 4, 5]
    assert (pairs.grouped, pairs.matched, pairs.differing()) == (True, False, 6)
    grouped = read_pairs(written(tmp_path / "t.npz", units=True), written(tmp_path / "b.npz", units=True))
    assert grouped.units is not None
    assert (grouped.count, np.bincount(grouped.units[0]).tolist(), grouped.differing()) == (2, [10, 5], 0)


def test_arrays_of_samples_that_one_run_lost(tmp_path: Path) -> None:
    pairs = read_pairs(written(tmp_path / "t.npz", lost="3.png"), written(tmp_path / "b.npz"))
    assert (pairs.lost, pairs.gained) == (("3.png",), ())
    result = judged(pairs, Recall())
    assert result.verdict is Verdict.FAIL
    assert "the target could not run 1 samples that the baseline ran, the first is 3.png" in result.reason


def test_arrays_of_other_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.npz has recall and .*b\.npz has ap; compare runs of one metric"):
        read_pairs(written(tmp_path / "t.npz"), written(tmp_path / "b.npz", "ap"))
    with pytest.raises(DataError, match=r"sample 0 is 0, 0\.png, unit u0 in the first and 0, 0\.png in the second"):
        read_pairs(written(tmp_path / "t.npz", units=True), written(tmp_path / "b.npz"))


# ----------------------------------------------------------------------------------- units, and weighings made once


class Counting(F1):
    """A metric whose preparation is counted."""

    made = 0

    def weighing(self, records: Array) -> Callable[[Array], float]:
        type(self).made += 1
        return super().weighing(records)


def test_what_hangs_on_the_records_alone_is_done_once_for_all_resamples() -> None:
    pairs = classes(200, 0.05, 0.0)(np.random.default_rng(0))
    assert judged(pairs, Counting()) == judged(pairs, F1())
    assert Counting.made < 10


def test_units_are_better_or_worse_by_the_metric_of_each_alone() -> None:
    # found, there: a unit whose records differ but not its recall, one better, one worse, one with nothing to find
    target = np.array([[1, 1], [0, 1], [1, 1], [0, 1], [0, 0], [1, 1]])
    baseline = np.array([[0, 1], [1, 1], [0, 1], [1, 1], [1, 0], [1, 1]])
    units = np.array([0, 0, 1, 2, 3, 4])
    pairs = Pairs(target, baseline, "recall", units=(units, units), count=5)
    result = judged(pairs, Recall(), alone=True)
    assert (result.better, result.worse) == (1, 1)
    assert ", 4 of 5 units differ (1 better, 1 worse); " in result.reason


def test_units_without_a_value_of_their_own_are_in_neither_count() -> None:
    class Picky(Recall):
        def value(self, records: Array, weights: Array) -> float:
            if not records[:, 1].any():
                raise DataError("nothing is there")
            return super().value(records, weights)

    target, baseline = np.array([[0, 0], [1, 1], [1, 1]]), np.array([[1, 0], [0, 1], [1, 1]])
    result = judged(Pairs(target, baseline, "recall", units=(np.arange(3), np.arange(3)), count=3), Picky(), alone=True)
    assert (result.better, result.worse) == (1, 0)
