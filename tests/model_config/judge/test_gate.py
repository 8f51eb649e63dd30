from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom, binomtest

from engine import Array, ConfigError, DataError
from model_config.judge import intervals, resampling
from model_config.judge.gate import Pairs, judge, judge_reference, read_pairs
from model_config.judge.intervals import score_interval
from model_config.results import Accuracy, Verdict
from utils.metrics import RecordMetric

TOLERANCE = 0.001
DRIFTS = (0.0, 0.0005, -0.0005, 0.002, -0.002, 0.01, -0.01)
SIZES = (300, 2000, 10_000, 50_000)
FLIPS = (0.0002, 0.001, 0.004, 0.02)
BASES = (0.76, 0.98)
COUNTS = st.integers(0, 400)


def paired(both: int, better: int, worse: int, neither: int) -> Pairs:
    counts = (both, better, worse, neither)
    return Pairs(np.repeat([1.0, 1, 0, 0], counts), np.repeat([1.0, 0, 1, 0], counts), "top1")


def judged(pairs: Pairs, **options: float) -> Accuracy:
    return judge(pairs, float(pairs.target.mean()), float(pairs.baseline.mean()), **options)


def rates(base: float, drift: float, flips: float) -> list[float]:
    """Shares of the four outcomes in a population with exactly this drift; `flips` in each direction without one."""
    better, worse = flips + max(drift * base, 0), flips + max(-drift * base, 0)
    return [base - worse, better, worse, 1 - base - better]


def drawn(shares: Sequence[float], size: int, runs: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).multinomial(size, shares, size=runs)


def verdicts(counts: Array, tolerance: float = TOLERANCE) -> tuple[Array, Array]:
    """Passes and failures by the score interval alone, which the gate's own contains."""
    low, high = score_interval(*counts[:, :3].astype(float).T)
    return (low >= -tolerance) & (high <= tolerance), (low > tolerance) | (high < -tolerance)


def at_most_five_percent(wrong: int, runs: int) -> bool:
    """A true rate of 5 % gives more once in a million."""
    return wrong <= binom.ppf(1 - 1e-6, runs, 0.05)


# --- wrong at most 5 % of the time -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("size", SIZES)
def test_wrong_verdicts_are_rare_at_any_drift_size_and_flip_rate(size: int, base: float) -> None:
    runs = 3000
    for drift in (*DRIFTS, 0.00101, -0.00101, 0.00099, -0.00099):
        for flips in FLIPS:
            shares = rates(base, drift, flips)
            if min(shares) < 0:
                continue
            passes, failures = verdicts(drawn(shares, size, runs))
            wrong = passes if abs(drift) > TOLERANCE else failures
            assert at_most_five_percent(int(wrong.sum()), runs), (drift, flips, wrong.mean())


def test_wrong_verdicts_are_rare_exactly_where_few_samples_flip() -> None:
    """No simulation: every outcome with its probability, just beside the tolerance, where few flips are due."""
    count = np.arange(60)
    better, worse = (part.ravel() for part in np.meshgrid(count, count, indexing="ij"))
    for base, size, flips in ((0.98, 4000, 2e-4), (0.5, 8000, 3e-5), (0.76, 5000, 1e-4), (0.98, 10_000, 0.0)):
        for drift in (0.000999, -0.000999, 0.001001, -0.001001):
            _, up, down, _ = rates(base, drift, flips)
            chance = binom.pmf(better, size, up) * binom.pmf(worse, size, down)
            both = np.full(len(better), round(base * size)) - worse
            passes, failures = verdicts(np.stack([both, better, worse], axis=1))
            assert chance[failures if abs(drift) < TOLERANCE else passes].sum() <= 0.05


@pytest.mark.parametrize("drift", [0.0, 0.0005, -0.0005, 0.0011, -0.002, 0.01])
def test_the_whole_gate_is_rarely_wrong(drift: float) -> None:
    for size in (300, 5000):
        outcomes = drawn(rates(0.9, drift, 0.0005), size, 60, seed=1)
        verdict = [judged(paired(*map(int, counts))).verdict for counts in outcomes]
        assert at_most_five_percent(verdict.count(Verdict.PASS if abs(drift) > TOLERANCE else Verdict.FAIL), 60)


def test_the_gate_decides_where_there_are_samples_enough() -> None:
    for drift, expected in ((0.0, Verdict.PASS), (0.01, Verdict.FAIL), (-0.01, Verdict.FAIL)):
        outcomes = drawn(rates(0.76, drift, 0.001), 50_000, 30)
        assert [judged(paired(*map(int, counts))).verdict for counts in outcomes].count(expected) >= 22


@pytest.mark.parametrize("drift", [0.0, -0.005])
def test_so_many_samples_as_are_needed_decide_in_most_runs(drift: float) -> None:
    size, base, flips = 2000, 0.76, 0.001
    needed = []
    for counts in drawn(rates(base, drift, flips), size, 40):
        result = judged(paired(*map(int, counts)))
        if result.needed is None:
            continue
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.needed > size
        assert f"{result.needed:,}".replace(",", " ") in result.reason or str(result.needed) in result.reason
        needed.append(result.needed)
        persisting = (counts + np.array([0, 0.5, 0.5, 0])) / (size + 1)
        decided = np.logical_or(*verdicts(drawn(persisting, result.needed, 200)))
        assert decided.mean() > 0.6, (counts, result.needed)
    decided = np.logical_or(*verdicts(drawn(rates(base, drift, flips), int(np.median(needed)), 500)))
    assert decided.mean() > 0.5


def test_no_number_is_named_where_the_difference_sits_at_the_tolerance() -> None:
    result = judged(paired(999, 0, 1, 0))
    assert (result.verdict, result.needed) == (Verdict.INCONCLUSIVE, None)
    assert result.reason.endswith("no number of samples can be named, since the difference sits at the tolerance")


# --- the interval -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 10, 300, 50_000])
def test_no_flips_do_not_mean_certainty(size: int) -> None:
    low, high = judged(paired(size, 0, 0, 0)).interval or (0, 0)
    unseen = 1 - 0.025 ** (1 / size)
    assert high > unseen
    assert low < -unseen / (1 + unseen)


@given(COUNTS, COUNTS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_swapping_the_runs_mirrors_the_interval(both: int, better: int, worse: int) -> None:
    counts = [float(max(both, 1)), float(better), float(worse)]
    low, high = (float(end) for end in score_interval(*map(np.asarray, counts)))
    counts[1:] = counts[:0:-1]
    swapped_low, swapped_high = (float(end) for end in score_interval(*map(np.asarray, counts)))
    assert -1 <= low <= (better - worse) / (max(both, 1) + worse) <= high
    # An end far out is cut: a ratio of a thousand is as good as any.
    if max(high, swapped_high) < intervals.WIDEST / 2:
        assert math.isclose(1 / (1 + low), 1 + swapped_high, rel_tol=1e-6)
        assert math.isclose(1 + high, 1 / (1 + swapped_low), rel_tol=1e-6)


@given(st.integers(1, 400), st.integers(0, 30), st.integers(0, 30), COUNTS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter_and_the_ends_are_the_safer_ones(
    both: int, better: int, worse: int, neither: int, random: Random
) -> None:
    pairs = paired(both, better, worse, neither)
    order = list(range(len(pairs.target)))
    random.shuffle(order)
    result = judged(pairs)
    assert result == judged(Pairs(pairs.target[order], pairs.baseline[order], "top1"))
    score = [float(end) for end in score_interval(*(np.asarray(float(n)) for n in (both, better, worse)))]
    assert result.interval is not None
    assert result.bootstrap is not None
    assert result.interval[0] <= min(score[0], result.bootstrap[0])
    assert result.interval[1] >= max(score[1], result.bootstrap[1])
    assert result.p_value == pytest.approx(binomtest(better, better + worse).pvalue if better + worse else 1)
    assert (result.better, result.worse) == (better, worse)
    assert result.p_value <= 0.05 or result.verdict is not Verdict.FAIL


@given(st.lists(st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)), min_size=1, max_size=30), st.randoms())
@settings(max_examples=30, deadline=None)
def test_order_does_not_matter_to_records_of_any_kind(rows: list[tuple[float, float]], random: Random) -> None:
    ends = []
    for _ in range(2):
        values = np.array([*rows, (0.5, 0.25)])
        ends.append(judged(Pairs(values[:, 0], values[:, 1], "iou")).interval)
        random.shuffle(rows)
    assert ends[0] == pytest.approx(ends[1])


# --- records that are not right or wrong, and metrics that are not means ----------------------------------------------


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("drift", [0.0, 0.0009, -0.0011, 0.002, -0.01])
def test_means_of_records_with_rare_large_changes(drift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sample of many loses or wins much: what a small data set does not show."""
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    rng = np.random.default_rng(3)
    runs, right = 40, Verdict.FAIL if abs(drift) > TOLERANCE else Verdict.PASS
    seen = []
    for _ in range(runs):
        baseline = rng.uniform(0.6, 0.8, 15_000)
        rare = rng.random(15_000) < abs(drift) * 0.7 / 0.3
        target = baseline + np.sign(drift) * 0.3 * rare + rng.normal(0, 1e-4, 15_000)
        seen.append(judged(Pairs(target, baseline, "iou")).verdict)
    assert at_most_five_percent(runs - seen.count(right) - seen.count(Verdict.INCONCLUSIVE), runs)
    if drift in (0.0, 0.002, -0.01):
        assert seen.count(right) > runs / 2


@pytest.mark.parametrize(("drift", "expected"), [(0.0, Verdict.PASS), (-0.01, Verdict.FAIL)])
def test_fifty_thousand_records_are_judged_fast_and_in_little_memory(drift: float, expected: Verdict) -> None:
    rng = np.random.default_rng(0)
    baseline = rng.uniform(0.4, 1, 50_000)
    pairs = Pairs(baseline * (1 + drift) + rng.normal(0, 1e-3, 50_000), baseline, "iou")
    tracemalloc.start()
    start = time.process_time()
    result = judged(pairs)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.verdict is expected
    assert result.p_value is None
    assert "rose" in result.reason
    assert seconds < 5
    assert peak < 150e6


class Correlation(RecordMetric):
    """Of the two columns of its records."""

    name = "pearson"

    def records(self, predictions: Array, targets: Sequence[float], contexts: object) -> Array:
        return np.stack([np.asarray(targets), predictions], axis=1)

    def value(self, records: Array, weights: Array) -> float:
        x, y = (column - np.average(column, weights=weights) for column in records.T)
        return float((weights * x) @ y / math.sqrt(((weights * x) @ x) * ((weights * y) @ y)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.5, 8.0])
def test_a_correlation_with_an_injected_drift(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "RESAMPLES", 200)
    tolerance, size, runs = 0.02, 3000, 40
    rng = np.random.default_rng(5)
    noise = math.sqrt(2 / (1 - factor * tolerance) ** 2 - 2)  # of the target; the baseline's correlation is 1 / sqrt(2)
    seen = []
    for _ in range(runs):
        truth = rng.normal(size=size)
        baseline = truth + rng.normal(size=size)
        target = baseline + noise * rng.normal(size=size)

        records = [np.stack([truth, run], axis=1) for run in (target, baseline)]
        values = [Correlation().value(each, np.ones(size)) for each in records]
        result = judge(Pairs(*records, "pearson"), *values, tolerance=tolerance, metric_of=Correlation())
        seen.append(result.verdict)
    assert at_most_five_percent(seen.count(Verdict.PASS if factor > 1 else Verdict.FAIL), runs)
    if factor in (0.0, 8.0):
        assert seen.count(Verdict.PASS if factor == 0 else Verdict.FAIL) > 0.9 * runs


class AveragePrecision(RecordMetric):
    """Of records with a score and whether it is right, as scikit-learn's without equal scores."""

    name = "ap"

    def records(self, predictions: Array, targets: Sequence[bool], contexts: object) -> Array:
        return np.stack([predictions, np.asarray(targets, float)], axis=1)

    def value(self, records: Array, weights: Array) -> float:
        order = np.argsort(-records[:, 0], kind="stable")
        right, weight = records[order, 1], weights[order]
        precision = np.cumsum(weight * right) / np.maximum(np.cumsum(weight), 1e-300)
        return float((precision * right) @ weight / (right @ weight))


def test_an_average_precision_of_records_with_columns() -> None:
    """Columns of a record are taken together; a drift is found, and equal records are not certain."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    labels = rng.random(400) < 0.4
    baseline = np.stack([labels + rng.normal(size=400), labels], axis=1)
    metric, once = AveragePrecision(), np.ones(400)
    reference = metric.value(baseline, once)
    assert reference == pytest.approx(metrics.average_precision_score(labels, baseline[:, 0]))
    broken = baseline * [0, 1] + rng.normal(size=(400, 1)) * [1, 0]
    result = judge(Pairs(broken, baseline, "ap"), metric.value(broken, once), reference, metric_of=metric)
    assert result.verdict is Verdict.FAIL
    assert ", worse (95 %: " in result.reason
    equal = judge(Pairs(baseline, baseline, "ap"), reference, reference, metric_of=metric)
    assert (equal.verdict, equal.bootstrap) == (Verdict.INCONCLUSIVE, (0.0, 0.0))
    assert "), 0 of 400 units differ; " in equal.reason
    assert equal.needed is not None
    assert equal.needed > 400


def test_a_negative_reference_is_judged_like_a_positive_one() -> None:
    records = np.random.default_rng(0).uniform(0.4, 1, 20_000)
    assert judged(Pairs(-records, -records, "score")).verdict is Verdict.PASS
    assert judged(Pairs(-1.01 * records, -records, "score")).verdict is Verdict.FAIL


def test_a_reference_that_may_be_zero_decides_nothing() -> None:
    records = np.random.default_rng(0).normal(size=(2, 200))
    result = judged(Pairs(records[0], records[1], "score"))
    assert (result.verdict, result.needed) == (Verdict.INCONCLUSIVE, None)
    assert result.reason.endswith("since the reference cannot be told from 0")


# --- what cannot be judged --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "metric", "reference", "words"),
    [
        (paired(3, 0, 0, 0), math.nan, 1.0, "metric is NaN"),
        (paired(3, 0, 0, 0), 1.0, math.inf, "reference is inf"),
        (paired(0, 2, 0, 1), 2 / 3, 0.0, "the reference is 0"),
        (Pairs(np.zeros(0), np.zeros(0), "top1"), 0.5, 0.5, "no sample that both runs could do"),
        (Pairs(np.array([1, math.nan]), np.ones(2), "top1"), 0.5, 1.0, "1 records of the target are NaN"),
        (Pairs(np.ones(2), np.ones(2), "top1", lost=("a.png", "b.png")), 1.0, 1.0, "target could not run 2 samples"),
        (Pairs(np.ones(2), np.ones(2), "top1", gained=("a.png",)), 1.0, 1.0, "baseline could not run 1 samples"),
    ],
)
def test_what_has_no_difference_fails(pairs: Pairs, metric: float, reference: float, words: str) -> None:
    result = judge(pairs, metric, reference)
    assert result.verdict is Verdict.FAIL
    assert words in result.reason
    assert "\n" not in result.reason


def test_one_sample_is_inconclusive() -> None:
    for pairs in (paired(1, 0, 0, 0), paired(0, 0, 1, 0), Pairs(np.array([0.7]), np.array([0.7]), "iou")):
        assert judged(pairs).verdict is Verdict.INCONCLUSIVE


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"top1: the target printed 0\.9, but its records give 0\.75"):
        judge(paired(3, 0, 1, 0), 0.9, 1.0)
    with pytest.raises(DataError, match=r"shape \(2,\) cannot be paired with records of shape \(3,\)"):
        Pairs(np.ones(2), np.ones(3), "top1")
    with pytest.raises(DataError, match=r"2 unit codes for 3 records of 2 units do not fit"):
        Pairs(np.ones(2), np.ones(3), "top1", units=(np.array([0, 1]), np.array([0, 1])), count=2)
    with pytest.raises(DataError, match=r"top1: its records are not one number per sample, .*; pass the metric too"):
        judge(Pairs(np.ones((2, 2)), np.ones((2, 2)), "top1"), 1.0, 1.0)
    for refused in (0.0, -0.1, math.nan):
        with pytest.raises(ConfigError, match="tolerance"):
            judged(paired(3, 0, 0, 0), tolerance=refused)
        with pytest.raises(ConfigError, match="tolerance"):
            judge_reference(0.5, 0.5, 10, tolerance=refused)


@pytest.mark.parametrize(("size", "verdict"), [(3600, Verdict.INCONCLUSIVE), (3700, Verdict.PASS)])
def test_two_zeros_are_judged_by_how_many_units_could_differ(size: int, verdict: Verdict) -> None:
    result = judged(paired(0, 0, 0, size))
    assert (result.verdict, result.relative_difference) == (verdict, 0.0)
    assert result.reason.startswith("top1 0 against 0: no relative difference (onnx float32), but all 3")
    assert "nan" not in result.reason
    assert (result.needed is None) == (verdict is Verdict.PASS)
    signed = np.array([1.0, -1.0] * (size // 2))
    result = judged(Pairs(signed, -signed, "bias"))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.endswith(f"the records of {size} of {size} units differ")


def test_the_reason_is_one_line_with_all_figures() -> None:
    result = judged(paired(3576, 1, 4, 19))
    assert result.reason.startswith("top1 0.99361 against 0.99444 of onnx float32: -0.08 % (95 %: -0.2")
    assert "), 1 better, 4 worse of 3600; tolerance 0.1 %: 7" in result.reason
    assert result.reason.endswith("0 000 samples would decide")


# --- a figure without records -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "reference", "samples", "verdict"),
    [
        (0.76, 0.7613, 50_000, Verdict.PASS),
        (0.9722, 0.9944, 360, Verdict.INCONCLUSIVE),
        (0.5, 0.7613, 50_000, Verdict.FAIL),
        (1.0, 1.0, 1, Verdict.PASS),
        (30.1, 30.0, 100, Verdict.PASS),
        (29.0, 30.0, 100, Verdict.FAIL),
        (0.5, 0.9, 0, Verdict.FAIL),
        (math.nan, 0.9, 10, Verdict.FAIL),
        (0.9, 0.0, 10, Verdict.FAIL),
    ],
)
def test_a_figure_without_records(metric: float, reference: float, samples: int, verdict: Verdict) -> None:
    result = judge_reference(metric, reference, samples, metric_name="top1", against="train.py, PyTorch")
    assert result.verdict is verdict
    assert "train.py, PyTorch" in result.reason
    assert (result.needed is not None) == (verdict is Verdict.INCONCLUSIVE)
    assert result.interval is None or result.interval[0] <= result.relative_difference <= result.interval[1]


# --- files ------------------------------------------------------------------------------------------------------------


def records(path: Path, *rows: str, metric: str = "top1") -> Path:
    path.write_text("\n".join([f"index,name,label,{metric}", *rows]) + "\n", encoding="utf-8")
    return path


def test_pairs_are_read_by_index_and_name(tmp_path: Path) -> None:
    target = records(tmp_path / "t.csv", "0,a,3,1", "1,b,4,0", "2,c,5,", "3,d,6,", "4,e,7,1")
    baseline = records(tmp_path / "b.csv", "0,a,3,1", "1,b,4,1", "2,c,5,", "3,d,6,1", "4,e,7,")
    pairs = read_pairs(target, baseline)
    assert (pairs.target.tolist(), pairs.baseline.tolist()) == ([1, 0], [1, 1])
    assert (pairs.metric_name, pairs.lost, pairs.gained) == ("top1", ("d",), ("e",))


def test_pairs_without_labels_or_rows(tmp_path: Path) -> None:
    same = records(tmp_path / "t.csv", "0,a,,1")
    assert read_pairs(same, same).target.tolist() == [1]
    empty = records(tmp_path / "e.csv")
    assert read_pairs(empty, empty).target.shape == (0,)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["0,a,3,1"], "row 3 is 1, b, label 4 in the first and missing in the second"),
        (["1,b,4,1", "0,a,3,1"], "row 2 is 0, a, label 3 in the first and 1, b, label 4 in the second"),
        (["0,a,3,1", "1,x,4,1"], "row 3 is 1, b, label 4 in the first and 1, x, label 4 in the second"),
        (["0,a,3,1", "1,b,5,1"], "row 3 is 1, b, label 4 in the first and 1, b, label 5 in the second"),
        (["0,a,3,1", "1,b,4,1", "2,c,4,1"], "row 4 is missing in the first and 2, c, label 4 in the second"),
    ],
)
def test_files_of_other_samples_are_refused(tmp_path: Path, rows: list[str], words: str) -> None:
    target = records(tmp_path / "t.csv", "0,a,3,1", "1,b,4,1")
    with pytest.raises(DataError, match=words) as caught:
        read_pairs(target, records(tmp_path / "b.csv", *rows))
    assert str(target) in str(caught.value)
    assert "b.csv" in str(caught.value)


def test_pairs_with_units(tmp_path: Path) -> None:
    text = "index,name,label,unit,top1\n0,a,3,ann,{}\n1,b,cat,bob,{}\n2,c,,ann,{}\n"
    (tmp_path / "t.csv").write_text(text.format(1, 0, 1))
    (tmp_path / "b.csv").write_text(text.format(1, 1, 1))
    pairs = read_pairs(tmp_path / "t.csv", tmp_path / "b.csv")
    assert pairs.units is not None
    assert (pairs.units[0].tolist(), pairs.count, pairs.samples) == ([0, 1, 0], 2, 3)
    (tmp_path / "b.csv").write_text(text.format(1, 1, 1).replace("bob", "ann"))
    with pytest.raises(
        DataError, match="row 3 is 1, b, label cat, unit bob in the first and 1, b, label cat, unit ann"
    ):
        read_pairs(tmp_path / "t.csv", tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"t\.csv and .*b\.npz are of different kinds"):
        read_pairs(tmp_path / "t.csv", tmp_path / "b.npz")


def test_files_of_other_metrics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv has top1 and .*b\.csv has top5"):
        read_pairs(records(tmp_path / "t.csv"), records(tmp_path / "b.csv", metric="top5"))
