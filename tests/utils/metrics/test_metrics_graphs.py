"""Metrics of whole graphs agree with scikit-learn, including weights and unknown targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import accuracy_score, mean_absolute_error, mean_squared_error, r2_score, roc_auc_score

from engine import ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric
from utils.metrics.graph_labels import GraphClasses, GraphLabels
from utils.metrics.regression import RegressionErrors

CHANCE = np.random.default_rng(0)


def of(metric: RecordMetric, predictions: object, targets: object) -> float:
    metric.update(predictions, targets)  # type: ignore[arg-type]
    return metric.compute()


@given(st.integers(2, 30), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_errors_of_one_target(count: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    right, message = chance.normal(size=(count, 1)), chance.normal(size=(count, 1))
    weights = chance.integers(0, 4, count).astype(np.float64)
    weights[:2] += 1
    for kind, reference in (
        ("rmse", lambda *given, **more: math.sqrt(mean_squared_error(*given, **more))),
        ("mae", mean_absolute_error),
        ("r2", r2_score),
    ):
        metric = RegressionErrors(kind)
        assert of(metric, message, right) == pytest.approx(reference(right, message))
        weighted = metric.value(metric._all(), weights)
        assert weighted == pytest.approx(reference(right, message, sample_weight=weights))


def test_several_targets_some_unknown() -> None:
    right = np.array([[1, np.nan], [2, 5.0], [4, 7.0]])
    message = np.array([[1, 9.0], [3, 5.0], [4, 6.0]])
    metric = RegressionErrors("rmse", ["a", "b"])
    assert of(metric, message, right) == pytest.approx((math.sqrt(1 / 3) + math.sqrt(1 / 2)) / 2)
    assert {name: row["samples"] for name, row in metric.per_class().items()} == {"a": 3, "b": 2}
    assert set(metric.secondary()) == {"mae", "r2"}
    assert math.isnan(RegressionErrors("r2").value(np.array([[[1.0], [2.0]], [[3.0], [2.0]]]), np.ones(2)))
    with pytest.raises(InputError, match=r"1 predicted .*2 targets"):
        RegressionErrors().update([np.zeros(1)], [np.zeros(2)])
    with pytest.raises(ConfigError, match=r"'top1' .*rmse, mae, r2"):
        RegressionErrors("top1")
    assert math.isnan(of(RegressionErrors(), [[np.nan], [1.0]], [[0.0], [1.0]]))


def test_exact_merge() -> None:
    right, message = CHANCE.normal(size=(20, 2)), CHANCE.normal(size=(20, 2))
    whole, first, second = RegressionErrors(), RegressionErrors(), RegressionErrors()
    whole.update(message, right)
    first.update(message[:7], right[:7])
    second.update(message[7:], right[7:])
    second.merge(first)
    assert second.compute() == whole.compute()


def test_properties() -> None:
    right = CHANCE.integers(0, 2, (60, 3)).astype(np.float64)
    right[::7, 1] = np.nan
    right[:, 2] = 1  # only one value: no area
    message = np.round(CHANCE.random((60, 3)), 1)  # many ties
    known = ~np.isnan(right[:, 1])
    areas = [roc_auc_score(right[:, 0], message[:, 0]), roc_auc_score(right[known, 1], message[known, 1])]
    metric = GraphLabels("roc_auc", ["a", "b", "c"])
    assert of(metric, message, right) == pytest.approx(np.mean(areas))
    everything = ~np.isnan(right)
    assert metric.secondary()["accuracy"] == pytest.approx(
        accuracy_score(right[everything], message[everything] >= 0.5)
    )
    assert math.isnan(metric.per_class()["c"]["roc_auc"])
    weights = CHANCE.integers(1, 4, 60).astype(np.float64)
    value = GraphLabels("roc_auc").value(metric._all()[:, :1], weights)
    assert value == pytest.approx(roc_auc_score(right[:, 0], message[:, 0], sample_weight=weights))
    with pytest.raises(DataError, match="target 2 must be"):
        GraphLabels().update([[0.5]], [[2.0]])
    with pytest.raises(InputError, match="1 probabilities for 2 targets"):
        GraphLabels().update([[0.5]], [[1.0, 0.0]])


def test_multiple_classes() -> None:
    message, right = CHANCE.random((40, 2)), CHANCE.integers(0, 2, 40)
    metric = GraphClasses()
    assert of(metric, message, right[:, None].astype(np.float64)) == accuracy_score(right, message.argmax(1))
    assert metric.secondary()["roc_auc"] == pytest.approx(roc_auc_score(right, message[:, 1]))
    three = GraphClasses()
    assert of(three, [[0.1, 0.2, 0.7], [np.nan, 0.2, 0.7]], [[2.0], [2.0]]) == 0.5
    assert three.secondary() == {}
    with pytest.raises(DataError, match="class from 0 to 1"):
        metric.update([[0.5, 0.5]], [[2.0]])
