from __future__ import annotations

import pickle
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from engine import ConfigError, DataError, InputError
from utils.metrics import TopK
from utils.metrics.classification import margins


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores with many ties (few distinct values), and at least three classes for scikit-learn's multiclass rule."""
    shape = (draw(st.integers(1, 30)), draw(st.integers(3, 12)))
    dtype = draw(st.sampled_from([np.float16, np.float32]))
    values = draw(hnp.arrays(dtype, shape, elements=st.sampled_from([-1.5, -0.0, 0.0, 0.25, 3.0])))
    return values, draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))


@settings(deadline=None)
@given(scored(), st.integers(1, 14))
def test_agrees_with_sklearn_ties_included(batch: tuple[np.ndarray, np.ndarray], k: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = batch
    ours = TopK(k)
    ours.update(scores, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics._ranking.UndefinedMetricWarning)  # k >= number of classes
        theirs = metrics.top_k_accuracy_score(labels, scores, k=k, labels=np.arange(scores.shape[1]))
    assert ours.compute() == theirs


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_top1_is_accuracy(count: int, classes: int, seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(classes, dtype=np.float32), (count, 1)), axis=1)  # no ties
    labels = rng.integers(0, classes, count)
    top1 = TopK(1)
    right = top1.update(scores, labels).values
    assert top1.compute() == metrics.accuracy_score(labels, scores.argmax(axis=1))
    assert np.array_equal(right, scores.argmax(axis=1) == labels)


@given(scored(), st.integers(0, 30), st.integers(1, 5))
def test_merge_is_exact(batch: tuple[np.ndarray, np.ndarray], cut: int, k: int) -> None:
    scores, labels = batch
    whole, left, right = TopK(k), TopK(k), TopK(k)
    record = whole.update(scores, labels).values
    parts = [left.update(scores[:cut], labels[:cut]), right.update(scores[cut:], labels[cut:])]
    left.merge(right)
    assert left.compute() == whole.compute()
    assert (left.correct, left.total) == (whole.correct, whole.total)
    assert np.array_equal(np.concatenate([part.values for part in parts]), record)


@given(st.lists(scored(), min_size=1, max_size=4), st.integers(1, 5))
def test_replaying_the_records_is_exact(batches: list[tuple[np.ndarray, np.ndarray]], k: int) -> None:
    metric, again = TopK(k), TopK(k)
    for scores, labels in batches:
        again.replay(metric.update(scores, labels))
    assert again.compute() == metric.compute()
    assert (again.correct, again.total) == (metric.correct, metric.total)
    sent = pickle.loads(pickle.dumps(metric))  # noqa: S301 -- as between the processes of a run
    sent.merge(again)
    assert (sent.correct, sent.total, sent.name) == (2 * metric.correct, 2 * metric.total, metric.name)


@pytest.mark.parametrize("record", [np.zeros(2), np.zeros((2, 1), bool), np.ones(2, np.int64), np.bool_(True)])
def test_a_record_of_another_metric(record: np.ndarray) -> None:
    metric = TopK()
    with pytest.raises(InputError, match="must be N booleans"):
        metric.replay(record)
    assert metric.total == 0


def test_of_equal_scores_the_higher_index_ranks_first() -> None:
    scores = np.zeros((4, 4), np.float16)
    assert TopK(1).update(scores, np.arange(4)).values.tolist() == [False, False, False, True]
    assert TopK(3).update(scores, np.arange(4)).values.tolist() == [False, True, True, True]


def test_nan_is_wrong_and_infinities_are_ranked() -> None:
    nan, inf = np.nan, np.inf
    scores = np.array([[nan, 0, 1], [0, nan, 1], [nan] * 3, [-inf, 0, inf], [inf, 0, 1]], np.float32)
    for k, want in ((1, [False, False, False, True, False]), (5, [False, False, False, True, True])):
        assert TopK(k).update(scores, np.array([0, 2, 1, 2, 1])).values.tolist() == want


def test_name_and_record() -> None:
    metric = TopK(5)
    assert metric.name == "top5"
    assert metric.update(np.eye(3, dtype=np.float32), np.arange(3)).values.dtype == np.bool_


@pytest.mark.parametrize("labels", [np.zeros(0, np.int64), np.array([]), []])
@pytest.mark.parametrize("classes", [0, 3])
def test_empty_batch(labels: object, classes: int) -> None:
    metric = TopK()
    record = metric.update(np.zeros((0, classes), np.float32), labels)
    assert record.margins is not None
    assert (record.values.shape, record.margins.shape) == ((0,), (0,))
    with pytest.raises(DataError, match="top1: no samples"):
        metric.compute()


@pytest.mark.parametrize("k", [0, -1, 1.0, None])
def test_invalid_k(k: object) -> None:
    with pytest.raises(ConfigError, match="top-k: k="):
        TopK(k)


@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((3, 2, 1)), np.zeros((3, 2), complex), np.zeros((3, 2), str)])
def test_invalid_scores(scores: np.ndarray) -> None:
    with pytest.raises(InputError, match="N x C real numbers"):
        TopK().update(scores, np.zeros(3, np.int64))


@pytest.mark.parametrize("labels", [np.zeros(2, np.int64), np.zeros((3, 1), np.int64), np.int64(0)])
def test_labels_of_another_length(labels: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"3 rows .*labels of shape "):
        TopK().update(np.zeros((3, 2)), labels)


@pytest.mark.parametrize("label", [-1, 2, 2**62])
def test_label_out_of_range(label: int) -> None:
    metric = TopK()
    with pytest.raises(DataError, match=rf"label {label} .*\(0 to 1\)"):
        metric.update(np.zeros((3, 2)), np.array([0, label, 1]))
    assert metric.total == 0


def test_float_labels() -> None:
    with pytest.raises(DataError, match="labels have dtype float64"):
        TopK().update(np.zeros((2, 2)), np.array([0.0, 1.0]))


def test_merge_of_another_metric() -> None:
    with pytest.raises(ConfigError, match="cannot merge top5 into top1"):
        TopK(1).merge(TopK(5))


@given(scored(), st.integers(1, 5), st.randoms())
def test_weights_repeat_samples(batch: tuple[np.ndarray, np.ndarray], k: int, random: Random) -> None:
    scores, labels = batch
    metric, repeated = TopK(k), TopK(k)
    record = metric.update(scores, labels.tolist(), [None] * len(labels)).values
    assert metric.value(record, np.ones(len(record))) == metric.compute()
    weights = np.array([random.randrange(4) for _ in record])
    taken = np.repeat(np.arange(len(record)), weights)
    repeated.update(scores[taken], labels[taken])
    if taken.size:
        assert metric.value(record, weights.astype(float)) == pytest.approx(repeated.compute(), rel=1e-12)
        assert metric.value(record.astype(float), weights.astype(float)) == metric.value(record, weights.astype(float))
    else:
        assert np.isnan(metric.value(record, weights.astype(float)))


def test_bounds_and_object_labels() -> None:
    assert (TopK.per_sample, TopK.bounds, TopK.higher_is_better) == (True, (0.0, 1.0), True)
    with pytest.raises(DataError, match="labels have dtype object"):
        TopK().update(np.zeros((2, 2)), [0, None])


# ------------------------------------------------------------------------------------------------------------- margins

SCORES = hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(2, 6)), elements=st.floats(-4, 4, width=16))


@given(SCORES, st.data(), st.integers(1, 7))
def test_margins_equal_sorted_scores(scores: np.ndarray, data: st.DataObject, k: int) -> None:
    labels = np.array(
        data.draw(st.lists(st.integers(0, scores.shape[1] - 1), min_size=len(scores), max_size=len(scores)))
    )
    found = margins(scores, labels, k)
    for row, label, margin in zip(scores.tolist(), labels.tolist(), found.tolist(), strict=True):
        others = sorted(row[:label] + row[label + 1 :], reverse=True)
        assert margin == (row[label] - others[k - 1] if k <= len(others) else np.inf)


@given(SCORES, st.data(), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_noise_below_half_the_margin_keeps_the_record(
    scores: np.ndarray, data: st.DataObject, k: int, seed: int
) -> None:
    labels = np.array(
        data.draw(st.lists(st.integers(0, scores.shape[1] - 1), min_size=len(scores), max_size=len(scores)))
    )
    before = TopK(k).update(scores, labels)
    assert before.margins is not None
    noise = np.random.default_rng(seed).choice([-1.0, 1.0], scores.shape)
    room = np.minimum(np.abs(before.margins), 100.0) * 0.499
    assert np.array_equal(TopK(k).update(scores + noise * room[:, None], labels).values, before.values)
    # Twice as much, all against the record, changes it.
    away = -np.sign(before.margins)[:, None] * np.where(np.arange(scores.shape[1]) == labels[:, None], 1.0, -1.0)
    there = np.isfinite(before.margins) & (before.margins != 0)
    changed = TopK(k).update((scores + away * np.where(there, np.abs(before.margins), 0)[:, None] * 0.501), labels)
    assert np.array_equal(changed.values[there], ~before.values[there])


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_margins_of_nan_and_infinite_scores(k: int) -> None:
    nan, inf = np.nan, np.inf
    scores = np.array([[nan, 0, 1], [0, nan, 1], [inf, inf, inf], [-inf, -inf, -inf], [inf, 0, -inf]], np.float32)
    record = TopK(k).update(scores, np.array([0, 2, 2, 2, 0]))
    assert record.margins is not None
    assert np.isnan(record.margins[:2]).all()
    assert record.margins[2:].tolist() == ([0, 0, inf] if k < 3 else [inf] * 3)
    assert record.values[:2].tolist() == [False, False]
