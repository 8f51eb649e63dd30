"""Mean average precision, compared with scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from engine import ConfigError, DataError, InputError
from utils.metrics.multi_label import MeanAveragePrecision


def test_by_hand() -> None:
    """Class a: hits at ranks 1 and 3, (1 + 2/3) / 2; class b: at rank 2, 1/2; class c: never."""
    metric = MeanAveragePrecision(["a", "b", "c"])
    scores = np.array([[0.9, 0.1, 0.3], [0.8, 0.5, 0.2], [0.7, 0.9, 0.1]])
    metric.update(scores, [["a"], "b", "a"])
    assert metric.compute() == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert metric.secondary() == {"mean_auc": pytest.approx((1 / 2 + 1 / 2) / 2), "classes": 2.0}
    assert metric.per_class()["a"] == {"ap": pytest.approx(5 / 6), "auc": pytest.approx(1 / 2), "samples": 2.0}


def test_targets_are_names_numbers_or_texts() -> None:
    metric = MeanAveragePrecision(["dog", "bark", "a,b"])
    metric.update(np.eye(3), ["dog, bark", [1], "a,b"])
    assert metric._all()[:, 3:].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    metric.update(np.eye(3)[:1], [[]])
    assert metric._all()[-1, 3:].tolist() == [0, 0, 0]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_equals_scikit_learn(count: int, classes: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    scores = np.round(chance.random((count, classes)), 1).astype(np.float32)  # with ties
    targets = chance.random((count, classes)) < 0.4
    weights = chance.integers(0, 4, count).astype(np.float64)
    metric = MeanAveragePrecision()
    metric.update(scores, [np.flatnonzero(row) for row in targets])
    kept = [place for place in range(classes) if (targets[:, place] * weights).sum()]
    found = metric.value(metric._all(), weights)
    if not kept:
        assert np.isnan(found)
        return
    wanted = [average_precision_score(targets[:, one], scores[:, one], sample_weight=weights) for one in kept]
    assert found == pytest.approx(np.mean(wanted), abs=1e-9)
    both = [one for one in range(classes) if 0 < targets[:, one].sum() < count]
    areas = [roc_auc_score(targets[:, one], scores[:, one]) for one in both]
    if both:
        assert metric.secondary()["mean_auc"] == pytest.approx(np.mean(areas), abs=1e-9)


def test_merging_and_replaying_give_the_same_bits() -> None:
    chance = np.random.default_rng(0)
    scores, targets = chance.random((12, 4)).astype(np.float32), [[int(one)] for one in chance.integers(0, 4, 12)]
    whole, parts = MeanAveragePrecision(), [MeanAveragePrecision() for _ in range(3)]
    whole.update(scores, targets)
    for place, part in enumerate(parts):
        part.update(scores[place::3], targets[place::3])
    for other in parts[1:]:
        parts[0].merge(other)
    assert parts[0].compute() == whole.compute()


def test_a_nan_is_wrong() -> None:
    metric = MeanAveragePrecision()
    metric.update(np.array([[np.nan], [0.5], [0.1]], np.float32), [[0], [0], []])
    assert metric.compute() == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("labels", "scores", "targets", "error", "text"),
    [
        (["a"], np.zeros((1, 1)), ["b"], DataError, "'b' is not a class"),
        (None, np.zeros((1, 2)), [[2]], DataError, r"\(0 to 1\)"),
        (["a"], np.zeros((1, 2)), ["a"], ConfigError, "1 labels for scores of 2 classes"),
        (None, np.zeros(3), [0, 0, 0], InputError, r"shape \(3,\)"),
    ],
)
def test_what_is_refused(labels, scores, targets, error, text) -> None:
    with pytest.raises(error, match=text):
        MeanAveragePrecision(labels).update(scores, targets)


def test_it_can_be_made_again_from_json() -> None:
    from utils.metrics.definition import metric_from_json, metric_to_json

    made = metric_from_json(json.loads(json.dumps(metric_to_json(MeanAveragePrecision(["a", "b"])))), None)
    assert (made.name, made.labels) == ("map", ("a", "b"))
