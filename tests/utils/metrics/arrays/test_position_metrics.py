"""Classes per position against scikit-learn, and against the metrics of one class per sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sk

from engine import Array, DataError
from utils.metrics.arrays.positions import PositionF1, PositionTopK, class_rows
from utils.metrics.classification import TopK
from utils.metrics.f1 import MacroF1

CASES = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(2, 5)).flatmap(
    lambda sizes: st.tuples(
        arrays(np.float64, sizes, elements=st.integers(0, 6).map(float)),
        arrays(np.int64, sizes[:2], elements=st.integers(0, sizes[2] - 1)),
    )
)


def best(scores: Array) -> Array:
    """Return the class of each row; of equal scores the higher one."""
    return scores.shape[-1] - 1 - scores[..., ::-1].argmax(axis=-1)


@given(CASES, st.integers(1, 3))
def test_top_k_agrees_with_scikit_learn_and_top_k(case: tuple[Array, Array], k: int) -> None:
    scores, labels = case
    ours, rows = PositionTopK(k), TopK(k)
    ours.update(list(scores), list(labels))
    rows.update(scores.reshape(-1, scores.shape[-1]), labels.ravel())
    assert ours.compute() == pytest.approx(rows.compute(), rel=1e-12)
    if k == 1:
        assert ours.compute() == pytest.approx(sk.accuracy_score(labels.ravel(), best(scores).ravel()), rel=1e-12)


@given(CASES)
def test_f1_agrees_with_scikit_learn_and_macro_f1(case: tuple[Array, Array]) -> None:
    scores, labels = case
    ours, rows = PositionF1(), MacroF1()
    ours.update(list(scores), list(labels))
    rows.update(scores.reshape(-1, scores.shape[-1]), labels.ravel())
    expected = sk.f1_score(labels.ravel(), best(scores).ravel(), average="macro", zero_division=0)
    assert ours.compute() == pytest.approx(expected, rel=1e-12)
    assert ours.compute() == pytest.approx(rows.compute(), rel=1e-12)
    assert ours.secondary()["top1"] == pytest.approx(sk.accuracy_score(labels.ravel(), best(scores).ravel()))


@given(CASES)
def test_classes_along_the_first_axis(case: tuple[Array, Array]) -> None:
    scores, labels = case
    (rows, classes), (moved, same) = (
        class_rows(one, labels[0], "x") for one in (scores[0], np.moveaxis(scores[0], -1, 0))
    )
    if scores.shape[1] != scores.shape[2]:  # with as many positions as classes the last axis has the classes
        np.testing.assert_array_equal(rows, moved)
        np.testing.assert_array_equal(classes, same)


def test_negative_classes_are_left_out() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    metric = PositionTopK()
    metric.update([scores], [np.array([0, -100, 1])])
    assert metric.compute() == 0.5


def test_the_margin_is_that_of_the_position_nearest_to_a_change() -> None:
    scores = np.array([[[0.9, 0.1], [0.45, 0.55]], [[0.9, 0.1], [0.3, 0.7]]])
    record = PositionTopK().records(list(scores), [np.array([0, 0]), np.array([0, 1])])
    assert record.margins.tolist() == pytest.approx([-0.1, 0.4])
    assert record.values.tolist() == [[1, 2], [2, 2]]


@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        (np.ones((4, 3)), np.zeros(5, np.int64), "one more axis"),
        (np.ones(4), np.zeros(4, np.int64), "--metric equal"),
        (np.ones((4, 3)), np.zeros(4), "integers"),
        (np.ones((4, 3)), np.full(4, 3), "not a class of the model"),
    ],
)
def test_wrong_classes(scores: Array, labels: Array, words: str) -> None:
    for metric in (PositionTopK(), PositionF1()):
        with pytest.raises(DataError, match=words):
            metric.update([scores], [labels])
