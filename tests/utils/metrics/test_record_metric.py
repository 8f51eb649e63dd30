from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import Array, ConfigError, DataError, InputError
from utils.metrics import MeanMetric, Metric, RecordMetric, Records

COUNTED = np.dtype([("errors", "<i4"), ("words", "<i4")])


class WordErrorRate(RecordMetric):
    """One record per sample, with two numbers."""

    name = "wer"
    higher_is_better = False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Array:
        rows = [(abs(p - t), t) for p, t in zip(predictions, targets, strict=True)]
        return np.array(rows, COUNTED)

    def value(self, records: Array, weights: Array) -> float:
        return float((records["errors"] / 3) @ weights / (records["words"] @ weights))


class Detected(RecordMetric):
    """As many records as in the prediction, with weights whose float sum is not exact."""

    name = "detected"

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Records:
        rows = [
            (i, t * 0.1 + n / 7, n) for i, (p, t) in enumerate(zip(predictions, targets, strict=True)) for n in range(p)
        ]
        values = np.array([row[1:] for row in rows], np.float64).reshape(-1, 2)
        return Records(values, np.array([row[0] for row in rows], np.int64))

    def value(self, records: Array, weights: Array) -> float:
        running = np.cumsum(records[:, 0] * weights)  # depends on the order of the records
        return float((running**self.power).sum() / weights.sum())


class Error(MeanMetric):
    name = "error"
    higher_is_better = False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Array:
        return np.asarray(predictions, float) - np.asarray(targets, float)


SAMPLES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=20)


@settings(deadline=None)
@given(SAMPLES, st.integers(1, 4), st.integers(1, 7), st.sampled_from([WordErrorRate, Detected, Error]), st.randoms())
def test_equal_bit_for_bit_for_any_split(
    samples: list[tuple[int, int]], processes: int, batch: int, kind: type[RecordMetric], random: Random
) -> None:
    whole = kind()
    whole.update(*zip(*samples, strict=True))
    parts: list[RecordMetric] = []
    for rank in range(processes):
        mine, metric, resumed = samples[rank::processes], kind(), kind()
        for start in range(0, len(mine), batch):
            resumed.replay(metric.update(*zip(*mine[start : start + batch], strict=True)))
        parts += [pickle.loads(pickle.dumps(resumed))]  # noqa: S301 -- as between the processes of a run
    random.shuffle(parts)
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    if kind is Detected and not sum(count for count, _ in samples):
        with pytest.raises(DataError, match="no records"):
            merged.compute()
    else:
        assert merged.compute() == whole.compute()


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30))
def test_a_mean_is_rounded_once(values: list[float]) -> None:
    metric = Error()
    metric.update(values, [0.0] * len(values))
    found = metric.compute()
    if abs(sum(values)) < 1e308:
        assert found == math.fsum(values) / len(values)
    weights = np.ones(len(values))
    assert metric.value(np.array(values), weights) == pytest.approx(found, rel=1e-6, abs=1e292)


def test_means_at_the_ends_of_floats() -> None:
    for values, want in (([1e308] * 4, 1e308), ([math.inf, 1.0], math.inf)):
        metric = Error()
        metric.update(values, [0.0] * len(values))
        assert metric.compute() == want
    metric = Error()
    metric.update([math.inf, -math.inf], [0.0, 0.0])
    assert math.isnan(metric.compute())
    assert math.isnan(Error().value(np.ones(2), np.zeros(2)))


@given(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.lists(st.integers(0, 9), min_size=3, max_size=3))
def test_weights_repeat_records(weights: list[int], values: list[int]) -> None:
    if not sum(weights):
        return
    repeated = Error()
    taken = np.repeat(values, weights)
    repeated.update(taken, [0] * len(taken))
    assert Error().value(np.array(values), np.array(weights, float)) == pytest.approx(repeated.compute())


def test_records_are_copied_and_packed() -> None:
    class Padded(WordErrorRate):
        def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Array:
            return predictions

    padded = np.zeros(3, np.dtype([("errors", "i1"), ("words", "<i4")], align=True))
    padded["words"], padded["errors"] = 3, [3, 1, 2]
    metric = Padded()
    kept = metric.update(padded, [0, 0, 0])
    padded["errors"] = 0
    assert kept.dtype.itemsize == 5
    assert metric.compute() == pytest.approx(2 / 9)


def test_invalid_records() -> None:
    class Given(RecordMetric):
        name = "given"

        def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Any:
            return contexts

        def value(self, records: Array, weights: Array) -> float:
            return 0.0

    def refused(found: Any, words: str) -> None:
        with pytest.raises(InputError, match=words) as caught:
            Given().update([1, 2], [1, 2], found)
        assert "\n" not in str(caught.value)

    refused(np.zeros(3), "given: 3 records for 2 samples")
    refused(np.array(["a", None]), "given: records of dtype object")
    refused(["a", "b"], "given: records of dtype <U1")
    refused(Records(np.zeros(3), np.array([0, 1])), "given: 2 samples for 3 records")
    refused(Records(np.zeros(1), np.array([2])), "given: samples of records .* from 0 to 1")
    refused(Records(np.zeros(1), np.array([0.5])), "given: samples of records must be integers")
    refused(Records(np.zeros(2), None, ["a"]), "given: 1 units for 2 records")
    with pytest.raises(InputError, match=r"given: 1 predictions .*2 targets"):
        Given().update([1], [1, 2])
    metric = Given()
    metric.update([1], [1], np.zeros(1))
    metric.update([], [], np.zeros((0, 4), bool))  # empty, of any dtype
    with pytest.raises(InputError, match=r"dtype bool .*dtype float64"):
        metric.update([1], [1], np.zeros(1, bool))
    with pytest.raises(InputError, match="list is not a record"):
        metric.replay([1.0])
    with pytest.raises(InputError, match="one number each"):
        Error()._packed(np.zeros((2, 2)))


def test_merge_of_another_metric() -> None:
    with pytest.raises(ConfigError, match="cannot merge error into wer"):
        WordErrorRate().merge(Error())
    with pytest.raises(ConfigError, match=r"cannot merge detected into detected"):
        Detected(1.0).merge(Detected(2.0))


def test_no_records() -> None:
    metric: Metric
    for metric in (WordErrorRate(), Error()):
        with pytest.raises(DataError, match=f"{metric.name}: no records"):
            metric.compute()
        metric.update([], [])
        with pytest.raises(DataError, match="no records"):
            metric.compute()
