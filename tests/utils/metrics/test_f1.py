"""Accuracy, macro F1 and Matthews' correlation: scikit-learn's values, weights, labels by name, and invalid input."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.metrics.base import Records
from utils.metrics.class_names import WrongLabelError
from utils.metrics.classification import TopK
from utils.metrics.f1 import RECORD, Accuracy, Labelled, MacroF1, Matthews

CLASSES = 4


def _values(record: np.ndarray | Records) -> np.ndarray:
    return record.values if isinstance(record, Records) else record


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties, and labels."""
    count = draw(st.integers(1, 12))
    row = st.lists(st.integers(0, 3), min_size=CLASSES, max_size=CLASSES)
    scores = np.array(draw(st.lists(row, min_size=count, max_size=count)), np.float32)
    return scores, np.array(draw(st.lists(st.integers(0, CLASSES - 1), min_size=count, max_size=count)))


@settings(deadline=None)
@given(batches(), st.integers(1, CLASSES))
def test_values_equal_scikit_learn(batch: tuple[np.ndarray, np.ndarray], k: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, labels = batch
    accuracy, f1, matthews = Accuracy(k), MacroF1(k), Matthews(k)
    for metric in (accuracy, f1, matthews):
        metric.update(list(scores), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for k >= classes, and for a single class
        wanted = sklearn.top_k_accuracy_score(labels, scores, k=k, labels=range(CLASSES))
        predicted = CLASSES - 1 - np.argmax(scores[:, ::-1], axis=1)
        correlation = sklearn.matthews_corrcoef(labels, predicted)
    macro = sklearn.f1_score(labels, predicted, average="macro", zero_division=0)
    assert accuracy.compute() == pytest.approx(wanted)
    assert f1.compute() == pytest.approx(macro)
    assert matthews.compute() == pytest.approx(correlation, abs=1e-12)
    figures = {f"top{k}": accuracy.compute(), "macro_f1": f1.compute(), "matthews": matthews.compute()}
    for metric in (accuracy, f1, matthews):
        beside = {name: pytest.approx(value, abs=1e-12) for name, value in figures.items() if name != metric.name}
        assert metric.secondary() == beside


@pytest.mark.parametrize("kind", [Accuracy, MacroF1, Matthews])
@settings(deadline=None)
@given(batch=batches(), data=st.data())
def test_weights_repeat_samples(
    kind: type[Labelled], batch: tuple[np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    scores, labels = batch
    counts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(labels), max_size=len(labels))))
    metric = kind()
    weighted = metric.value(_values(metric.records(scores, labels)), counts.astype(float))
    if not counts.any():
        assert math.isnan(weighted)
        return
    metric.update(scores.repeat(counts, axis=0), labels.repeat(counts))
    assert weighted == pytest.approx(metric.compute(), abs=1e-12)


def test_labels_by_name_and_number() -> None:
    metric = MacroF1(labels=["no", "yes"])
    scores = np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.float32)
    assert _values(metric.update(scores, ["no", "yes", 1, "0"]))["right"].all()
    with pytest.raises(DataError, match=r"'yess' is not a class .*'yes'"):
        metric.update(scores[:1], ["yess"])
    with pytest.raises(DataError, match="the model stores no names"):
        MacroF1().update(scores[:1], ["yes"])
    with pytest.raises(DataError, match=r"label 2 .*\(0 to 1\)"):
        metric.update(scores[:1], [2])


def test_nan_is_wrong_for_any_k() -> None:
    metric = Accuracy(2)
    found = metric.update(np.array([[np.nan, 1.0], [2.0, 1.0]]), [1, 0])
    assert isinstance(found, Records)
    assert found.values["right"].tolist() == [False, True]
    assert found.values["predicted"].tolist() == [-1, 0]
    assert np.array_equal(found.margins, [np.nan, np.inf], equal_nan=True)
    assert metric.compute() == 0.5


def test_an_empty_batch() -> None:
    assert len(_values(MacroF1().update(np.zeros((0, 3)), []))) == 0


def test_merge_and_replay() -> None:
    scores, labels = np.eye(3, dtype=np.float32), [0, 1, 1]
    whole, parts, again = MacroF1(), MacroF1(), MacroF1()
    again.replay(whole.update(scores, labels))
    parts.update(scores[:1], labels[:1])
    other = MacroF1()
    other.update(scores[1:], labels[1:])
    parts.merge(other)
    assert whole.compute() == parts.compute() == again.compute()
    with pytest.raises(ConfigError, match="cannot merge"):
        MacroF1(2).merge(other)
    with pytest.raises(ConfigError, match="cannot merge"):
        Accuracy().merge(other)


@pytest.mark.parametrize("scores", [np.zeros(2), np.zeros((1, 2)), np.array([["a", "b"]] * 2)])
def test_invalid_scores(scores: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"for 2 labels|with 2 targets"):
        Accuracy().update(scores, [0, 1])


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_invalid_k(k: int) -> None:
    with pytest.raises(ConfigError, match="top-k: k="):
        Accuracy(k)


@pytest.mark.parametrize("label", ["9" * 5000, 10**30, -1, "z" * 5000, "x"])
def test_the_error_for_an_invalid_label_has_its_place(label: object) -> None:
    with pytest.raises(WrongLabelError, match=r"not a class") as caught:
        Accuracy().update(np.zeros((3, 2)), [0, 1, label])
    assert caught.value.place == 2
    assert len(str(caught.value)) < 400


@given(batch=batches(), k=st.integers(1, 5), names=st.booleans())
def test_accuracy_has_the_margins_of_topk(batch: tuple[np.ndarray, np.ndarray], k: int, names: bool) -> None:
    scores, labels = batch
    metric = Accuracy(k, list("abcd") if names else None)
    ours = metric.update(scores, ["abcd"[label] for label in labels] if names else labels)
    theirs = TopK(k).update(scores, labels)
    assert isinstance(ours, Records)
    assert Accuracy.has_margins
    assert np.array_equal(ours.values["right"], theirs.values)
    assert np.array_equal(ours.margins, theirs.margins)


@pytest.mark.parametrize("kind", [MacroF1, Matthews])
def test_other_metrics_have_the_gap_of_the_two_best_classes(kind: type[Labelled]) -> None:
    scores = np.array([[0.5, 2.0, 1.75], [3.0, 3.0, 0.0], [np.nan, 1.0, 0.0]])
    found = kind().update(scores, [0, 1, 2])
    assert isinstance(found, Records)
    assert np.array_equal(found.margins, [0.25, 0, np.nan], equal_nan=True)


@pytest.mark.parametrize("kind", [MacroF1, Matthews])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_effect_is_that_of_the_worst_changed_prediction(kind: type[Labelled], classes: int) -> None:
    rng = np.random.default_rng(classes)
    metric, records = kind(), np.zeros(60, RECORD)
    records["label"] = rng.integers(0, classes, 60)
    records["predicted"] = np.where(rng.random(60) < 0.7, records["label"], rng.integers(0, classes, 60))
    value, ones = metric.value(records, np.ones(60)), np.ones(60)
    worst = 0.0
    for place in range(60):
        for other in range(classes):
            moved = records.copy()
            moved["predicted"][place] = other
            worst = max(worst, abs(metric.value(moved, ones) - value))
    assert metric.effect(records, records) == pytest.approx(60 * worst / value)
    many = np.zeros(200, RECORD)
    many["label"] = many["predicted"] = np.arange(200)
    assert np.isnan(metric.effect(many, many))
