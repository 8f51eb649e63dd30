"""The accuracy gate: the verdict follows from two metrics, and records of two runs are paired by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import Array, ConfigError, DataError
from model_config.judge.gate import Pairs, judge, judge_figures, read_pairs, verdict_of
from model_config.results import Accuracy, Verdict
from utils.datasets.base import Batch
from utils.metrics import RecordMetric, Records
from utils.pipeline.resume.records.arrays import ArrayRecordWriter


class Recall(RecordMetric):
    """Of detections: one record (found, there) per box, any number of boxes in an image."""

    name = "recall"

    def records(self, predictions: object, targets: object, contexts: object) -> Records:
        raise NotImplementedError

    def value(self, records: Array, weights: Array) -> float:
        return float(records[:, 0] @ weights / (records[:, 1] @ weights))


def paired(both: int, better: int, worse: int, neither: int) -> Pairs:
    counts = (both, better, worse, neither)
    return Pairs(np.repeat([1.0, 1, 0, 0], counts), np.repeat([1.0, 0, 1, 0], counts), "top1")


def judged(pairs: Pairs, **options: float) -> Accuracy:
    return judge(pairs, float(pairs.target.mean()), float(pairs.baseline.mean()), **options)


# --- the rule --------------------------------------------------------------------------------------------------------


@given(
    reference=st.floats(-1e3, 1e3).filter(lambda value: abs(value) > 1e-6),
    change=st.floats(-0.05, 0.05),
    tolerance=st.sampled_from([0.001, 0.01]),
)
def test_the_verdict_is_the_relative_change_within_the_tolerance(
    reference: float, change: float, tolerance: float
) -> None:
    metric = reference + change * abs(reference)
    result = judge_figures(metric, reference, tolerance=tolerance)
    assert (result.verdict is Verdict.PASS) == (abs((metric - reference) / abs(reference)) <= tolerance)
    assert result.relative_difference == pytest.approx((metric - reference) / abs(reference))


@pytest.mark.parametrize(
    ("pairs", "verdict", "differing"),
    [
        (paired(300, 0, 0, 60), Verdict.PASS, 0),
        (paired(9990, 1, 2, 7), Verdict.PASS, 3),
        (paired(298, 0, 2, 60), Verdict.FAIL, 2),
        (paired(298, 2, 0, 60), Verdict.FAIL, 2),
        (paired(0, 0, 0, 360), Verdict.PASS, 0),
        (paired(1, 0, 0, 0), Verdict.PASS, 0),
    ],
)
def test_records_are_judged_by_their_metric(pairs: Pairs, verdict: Verdict, differing: int) -> None:
    result = judged(pairs)
    assert (result.verdict, result.differing, result.units) == (verdict, differing, pairs.total)
    assert result.better + result.worse == differing
    assert f"{differing} of {pairs.total}" in result.reason.replace(" ", " ") or pairs.total >= 10_000


def test_a_strict_gate_requires_a_bound_too() -> None:
    few, many = (judged(paired(count, 0, 0, 0), strict=True) for count in (360, 4000))
    assert (few.verdict, many.verdict) == (Verdict.INCONCLUSIVE, Verdict.PASS)
    assert few.needed is not None
    assert 3500 < few.needed < 4000
    assert many.bound is not None
    assert many.bound <= 0.001
    assert judged(paired(298, 0, 2, 60), strict=True).verdict is Verdict.FAIL


def test_a_bound_of_100_percent_is_a_plain_number() -> None:
    assert "on other data at most 100 % " in judged(paired(10, 0, 90, 0)).reason


def test_the_names_of_predictions_that_differ() -> None:
    names = tuple(f"{place}.png" for place in range(40))
    pairs = Pairs(np.ones(40), np.arange(40) % 2 * 1.0, "top1", unit_names=names)
    result = judged(pairs)
    assert result.differing == 20
    assert result.changed == names[::2]


def test_a_lower_metric_may_be_better() -> None:
    result = judge_figures(0.3, 0.1, higher_is_better=False)
    assert "worse" in result.reason
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((-0.01, 0.01), Verdict.PASS), ((0.02, 0.03), Verdict.FAIL), ((-0.02, 0.001), Verdict.INCONCLUSIVE)],
)
def test_an_interval_against_a_tolerance(interval: tuple[float, float], verdict: Verdict) -> None:
    assert verdict_of(interval, 0.01) is verdict


# --- runs that cannot be compared -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "metric", "reference", "word"),
    [
        (paired(3, 0, 0, 0), math.nan, 1.0, "NaN"),
        (paired(3, 0, 0, 0), 1.0, math.inf, "inf"),
        (paired(0, 2, 0, 1), 2 / 3, 0.0, "reference is 0"),
        (Pairs(np.zeros(0), np.zeros(0), "top1"), 0.5, 0.5, "no sample"),
        (Pairs(np.array([1, math.nan]), np.ones(2), "top1"), 0.5, 1.0, "1 records of the target"),
        (Pairs(np.ones(2), np.ones(2), "top1", lost=("a.png", "b.png")), 1.0, 1.0, "a.png"),
        (Pairs(np.ones(2), np.ones(2), "top1", gained=("a.png",)), 1.0, 1.0, "a.png"),
    ],
)
def test_runs_that_cannot_be_compared_fail(pairs: Pairs, metric: float, reference: float, word: str) -> None:
    result = judge(pairs, metric, reference)
    assert result.verdict is Verdict.FAIL
    assert word in result.reason
    assert "\n" not in result.reason


def test_invalid_arguments() -> None:
    with pytest.raises(DataError, match=r"0\.9.*0\.75"):
        judge(paired(3, 0, 1, 0), 0.9, 1.0)
    with pytest.raises(DataError, match=r"\(2,\).*\(3,\)"):
        Pairs(np.ones(2), np.ones(3), "top1")
    with pytest.raises(DataError, match=r"2 unit codes for 3 records"):
        Pairs(np.ones(2), np.ones(3), "top1", units=(np.array([0, 1]), np.array([0, 1])), count=2)
    with pytest.raises(DataError, match="top1"):
        judge(Pairs(np.ones((2, 2)), np.ones((2, 2)), "top1"), 1.0, 1.0)
    for tolerance in (0.0, -0.1, math.nan):
        with pytest.raises(ConfigError, match="tolerance"):
            judged(paired(3, 0, 0, 0), tolerance=tolerance)


@pytest.mark.parametrize(
    ("metric", "reference", "verdict"),
    [
        (0.76, 0.7613, Verdict.PASS),
        (0.9722, 0.9944, Verdict.FAIL),
        (30.1, 30.0, Verdict.PASS),
        (29.0, 30.0, Verdict.FAIL),
        (0.0, 0.0, Verdict.PASS),
        (math.nan, 0.9, Verdict.FAIL),
        (0.9, 0.0, Verdict.FAIL),
    ],
)
def test_a_published_figure(metric: float, reference: float, verdict: Verdict) -> None:
    result = judge_figures(metric, reference, metric_name="top1", against="train.py, PyTorch")
    assert result.verdict is verdict
    assert "train.py, PyTorch" in result.reason


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
    with pytest.raises(DataError, match=r"t\.csv and .*b\.npz"):
        read_pairs(tmp_path / "t.csv", tmp_path / "b.npz")


def test_files_of_other_metrics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv has top1 and .*b\.csv has top5"):
        read_pairs(records(tmp_path / "t.csv"), records(tmp_path / "b.csv", metric="top5"))


# --- arrays ----------------------------------------------------------------------------------------------------------


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
    result = judge(pairs, 0.5, 0.5, metric_of=Recall())
    assert result.verdict is Verdict.FAIL
    assert "the target could not run 1 samples that the baseline ran, the first is 3.png" in result.reason


def test_arrays_of_other_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.npz has recall and .*b\.npz has ap"):
        read_pairs(written(tmp_path / "t.npz"), written(tmp_path / "b.npz", "ap"))
    with pytest.raises(DataError, match=r"sample 0 is 0, 0\.png, unit u0 in the first and 0, 0\.png in the second"):
        read_pairs(written(tmp_path / "t.npz", units=True), written(tmp_path / "b.npz"))


# --- margins ---------------------------------------------------------------------------------------------------------

ROWS = "index,name,label,{}margin,top1\n0,a,3,{}{},{}\n1,b,4,{}{},{}\n2,c,5,{}{},{}\n"


def margin_rows(path: Path, *cells: object, units: Sequence[str] = ()) -> Path:
    """Write three rows; ``cells``: margin and value of each."""
    own = [f"{unit}," for unit in units] or [""] * 3
    parts = [part for place in range(3) for part in (own[place], cells[2 * place], cells[2 * place + 1])]
    path.write_text(ROWS.format("unit," if units else "", *parts))
    return path


def test_margins_of_rows(tmp_path: Path) -> None:
    target = margin_rows(tmp_path / "t.csv", 0.5, 1, -0.25, 0, "inf", 1)
    baseline = margin_rows(tmp_path / "b.csv", 0.75, 1, 0.125, 1, "inf", 1)
    pairs = read_pairs(target, baseline)
    assert pairs.margins is not None
    assert [side.tolist() for side in pairs.margins] == [[0.5, -0.25, np.inf], [0.75, 0.125, np.inf]]
    assert (pairs.sample_units.tolist(), pairs.changed.tolist()) == ([0, 1, 2], [False, True, False])
    assert (pairs.target.tolist(), pairs.units) == ([1, 0, 1], None)


def test_margins_of_rows_with_units(tmp_path: Path) -> None:
    target = margin_rows(tmp_path / "t.csv", 0.5, 1, -0.25, 0, 3, 1, units=("ann", "bob", "ann"))
    baseline = margin_rows(tmp_path / "b.csv", 0.75, 1, 0.125, 1, 2, 1, units=("ann", "bob", "ann"))
    pairs = read_pairs(target, baseline)
    assert pairs.margins is not None
    assert (pairs.sample_units.tolist(), pairs.changed.tolist()) == ([0, 1, 0], [False, True, False])
    assert pairs.unit_names == ("ann", "bob")


def test_margins_of_rows_that_one_run_lost(tmp_path: Path) -> None:
    target = margin_rows(tmp_path / "t.csv", "", "", -0.25, 0, 3, 1)
    baseline = margin_rows(tmp_path / "b.csv", 0.75, 1, 0.125, 1, 2, 1)
    pairs = read_pairs(target, baseline)
    assert pairs.margins is not None
    assert [side.tolist() for side in pairs.margins] == [[-0.25, 3], [0.125, 2]]
    assert (pairs.lost, pairs.sample_units.tolist(), pairs.changed.tolist()) == (("a",), [0, 1], [True, False])


def test_margins_that_are_unknown(tmp_path: Path) -> None:
    known = margin_rows(tmp_path / "t.csv", 0.5, 1, 1, 0, 3, 1)
    for place, cells in enumerate([("nan", 1, 1, 0, 3, 1), ("", 1, 1, 0, 3, 1)]):
        assert read_pairs(known, margin_rows(tmp_path / f"{place}.csv", *cells)).margins is None
    assert read_pairs(known, records(tmp_path / "old.csv", "0,a,3,1", "1,b,4,0", "2,c,5,1")).margins is None


COUNTS = (2, 0, 1, 3)
"""Records of the four samples of :func:`margin_arrays`; the second has none."""


def margin_arrays(
    path: Path,
    *,
    margins: Sequence[float] | None = (1.0, 2.0, -0.5, 0.25),
    counts: Sequence[int] = COUNTS,
    changed: int | None = None,
    lost: int | None = None,
    units: Sequence[str] | None = None,
    own: bool = False,
) -> Path:
    """Write four samples in one batch; all records of the sample ``changed`` differ, ``lost`` could not be run."""
    good = [sample for sample in range(4) if sample != lost]
    rows = [(place, sample, n) for place, sample in enumerate(good) for n in range(counts[sample])]
    values = np.array([[sample, n + 100 * (sample == changed)] for _, sample, n in rows], np.float64).reshape(-1, 2)
    record = Records(
        values,
        np.array([place for place, _, _ in rows], np.int64),
        [f"q{n}" for _, _, n in rows] if own else None,
        None if margins is None else np.array([margins[sample] for sample in good]),
    )
    names = [f"{sample}.png" for sample in range(4)]
    with ArrayRecordWriter(path, "recall", has_margins=margins is not None) as writer:
        writer.write(Batch(names, None, names, None if units is None else list(units)), record, good)
    return path


def test_margins_of_arrays(tmp_path: Path) -> None:
    target = margin_arrays(tmp_path / "t.npz", margins=(1.5, 2.0, 0.5, 0.25), changed=2)
    pairs = read_pairs(target, margin_arrays(tmp_path / "b.npz"))
    assert pairs.margins is not None
    assert [side.tolist() for side in pairs.margins] == [[1.5, 2.0, 0.5, 0.25], [1.0, 2.0, -0.5, 0.25]]
    assert pairs.changed.tolist() == [False, False, True, False]
    assert len(set(pairs.sample_units.tolist())) == 4
    assert len(pairs.target) == 6


def test_a_sample_with_another_number_of_records_is_changed(tmp_path: Path) -> None:
    target = margin_arrays(tmp_path / "t.npz", counts=(2, 1, 1, 2))
    pairs = read_pairs(target, margin_arrays(tmp_path / "b.npz"))
    assert pairs.changed.tolist() == [False, True, False, True]


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("units", [None, ("u", "v", "v", "u")])
def test_margins_of_arrays_that_one_run_lost(tmp_path: Path, lost: int, units: tuple[str, ...] | None) -> None:
    changed = (lost + 1) % 4
    target = margin_arrays(tmp_path / "t.npz", lost=lost, changed=changed, units=units)
    pairs = read_pairs(target, margin_arrays(tmp_path / "b.npz", units=units))
    kept = [sample for sample in range(4) if sample != lost]
    assert pairs.margins is not None
    assert pairs.lost == (f"{lost}.png",)
    assert pairs.margins[0].tolist() == [(1.0, 2.0, -0.5, 0.25)[sample] for sample in kept]
    assert pairs.changed.tolist() == [sample == changed and COUNTS[sample] > 0 for sample in kept]
    groups = kept if units is None else [units[sample] for sample in kept]
    same = [[one == other for one in groups] for other in groups]
    assert np.equal.outer(pairs.sample_units, pairs.sample_units).tolist() == same
    gained = read_pairs(tmp_path / "b.npz", tmp_path / "t.npz")
    assert gained.margins is not None
    assert (gained.gained, gained.changed.tolist()) == (pairs.lost, pairs.changed.tolist())


def test_margins_of_arrays_with_units_of_records(tmp_path: Path) -> None:
    target = margin_arrays(tmp_path / "t.npz", own=True)
    pairs = read_pairs(target, margin_arrays(tmp_path / "b.npz", own=True))
    assert pairs.margins is not None
    last, without = pairs.sample_units[[0, 3]].tolist(), int(pairs.sample_units[1])
    assert without not in last
    assert without >= pairs.count


def test_arrays_without_margins(tmp_path: Path) -> None:
    new, old = margin_arrays(tmp_path / "t.npz"), margin_arrays(tmp_path / "b.npz", margins=None)
    assert read_pairs(new, old).margins is None
    unknown = margin_arrays(tmp_path / "n.npz", margins=(np.nan, 1, 1, 1))
    assert read_pairs(new, unknown).margins is None
