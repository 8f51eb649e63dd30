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
    right = top1.update(scores, labels)
    assert top1.compute() == metrics.accuracy_score(labels, scores.argmax(axis=1))
    assert np.array_equal(right, scores.argmax(axis=1) == labels)


@given(scored(), st.integers(0, 30), st.integers(1, 5))
def test_merge_is_exact(batch: tuple[np.ndarray, np.ndarray], cut: int, k: int) -> None:
    scores, labels = batch
    whole, left, right = TopK(k), TopK(k), TopK(k)
    record = whole.update(scores, labels)
    parts = [left.update(scores[:cut], labels[:cut]), right.update(scores[cut:], labels[cut:])]
    left.merge(right)
    assert left.compute() == whole.compute()
    assert (left.correct, left.total) == (whole.correct, whole.total)
    assert np.array_equal(np.concatenate(parts), record)


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
    assert TopK(1).update(scores, np.arange(4)).tolist() == [False, False, False, True]
    assert TopK(3).update(scores, np.arange(4)).tolist() == [False, True, True, True]


def test_nan_is_wrong_and_infinities_are_ranked() -> None:
    nan, inf = np.nan, np.inf
    scores = np.array([[nan, 0, 1], [0, nan, 1], [nan] * 3, [-inf, 0, inf], [inf, 0, 1]], np.float32)
    for k, want in ((1, [False, False, False, True, False]), (5, [False, False, False, True, True])):
        assert TopK(k).update(scores, np.array([0, 2, 1, 2, 1])).tolist() == want


def test_name_and_record() -> None:
    metric = TopK(5)
    assert metric.name == "top5"
    assert metric.update(np.eye(3, dtype=np.float32), np.arange(3)).dtype == np.bool_


@pytest.mark.parametrize("labels", [np.zeros(0, np.int64), np.array([]), []])
@pytest.mark.parametrize("classes", [0, 3])
def test_empty_batch(labels: object, classes: int) -> None:
    metric = TopK()
    assert metric.update(np.zeros((0, classes), np.float32), labels).shape == (0,)
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
    record = metric.update(scores, labels.tolist(), [None] * len(labels))
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
