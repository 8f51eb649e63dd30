"""Metrics of several outputs: the first is of record, the others are secondary; records carry all of them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn import metrics as sk

from engine import Array, ConfigError, DataError
from utils.metrics import metric_from_json, metric_to_json
from utils.metrics.arrays.outputs import OutputMetrics

MEASURES: list[dict[str, Any]] = [
    {"outputs": ["kind"], "kind": "topk", "k": 1},
    {"outputs": ["/head/map:0"], "kind": "rmse"},
    {"outputs": ["tags"], "kind": "f1_of_positions"},
    {"outputs": ["click"], "kind": "auc"},
    {"outputs": ["image"], "kind": "psnr", "peak": 1.0},
]


def drawn(count: int, seed: int = 0) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    rng = np.random.default_rng(seed)
    found = [
        {
            "kind": rng.normal(size=4).astype(np.float32),
            "/head/map:0": rng.normal(size=(1, 3, 5)),
            "tags": rng.normal(size=(6, 3)),
            "click": rng.normal(size=1),
            "image": rng.uniform(size=(2, 2)),
        }
        for _ in range(count)
    ]
    wanted = [
        {
            "kind": np.array(place % 4),
            "/head/map:0": rng.normal(size=(3, 5)),
            "tags": rng.integers(0, 3, 6),
            "click": np.array(place % 2),
            "image": rng.uniform(size=(2, 2)),
        }
        for place in range(count)
    ]
    return found, wanted


def test_values_are_those_of_scikit_learn() -> None:
    found, wanted = drawn(40)
    metric = OutputMetrics(MEASURES)
    metric.update(found, wanted)
    figures = {metric.name: metric.compute(), **metric.secondary()}

    def column(rows: list[dict[str, Array]], name: str) -> Array:
        return np.array([np.squeeze(row[name]) for row in rows])

    scores, labels = column(found, "kind"), column(wanted, "kind")
    assert figures["kind_top1"] == pytest.approx(sk.accuracy_score(labels, scores.argmax(axis=1)))
    maps = column(wanted, "/head/map:0").ravel(), column(found, "/head/map:0").ravel()
    assert figures["head_map_0_rmse"] == pytest.approx(sk.root_mean_squared_error(*maps))
    assert figures["head_map_0_mae"] == pytest.approx(sk.mean_absolute_error(*maps))
    tags = column(wanted, "tags").ravel(), column(found, "tags").argmax(axis=2).ravel()
    assert figures["tags_macro_f1"] == pytest.approx(sk.f1_score(*tags, average="macro"))
    assert figures["click_roc_auc"] == pytest.approx(sk.roc_auc_score(column(wanted, "click"), column(found, "click")))
    assert metric.higher_is_better
    assert metric.bounds == (0, 1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 3))
def test_any_split_gives_the_same_figures_bit_for_bit(sizes: list[int], seed: int) -> None:
    found, wanted = drawn(sum(sizes), seed)
    whole, merged, start = OutputMetrics(MEASURES), OutputMetrics(MEASURES), 0
    whole.update(found, wanted)
    for size in sizes:
        part = OutputMetrics(MEASURES)
        part.replay(OutputMetrics(MEASURES).update(found[start : start + size], wanted[start : start + size]))
        part.merge(pickle.loads(pickle.dumps(OutputMetrics(MEASURES))))  # noqa: S301
        merged.merge(part)
        start += size
    assert merged.compute() == whole.compute()
    assert merged.secondary() == whole.secondary()


def test_the_definition_makes_the_same_metric() -> None:
    found, wanted = drawn(12)
    metric = OutputMetrics(MEASURES)
    record = metric.update(found, wanted)
    again = metric_from_json(json.loads(json.dumps(metric_to_json(metric))), None)
    again.replay(record)
    assert (again.name, again.compute(), again.secondary()) == (metric.name, metric.compute(), metric.secondary())


def test_the_gate_gets_the_margins_or_gaps_of_the_metric_of_record() -> None:
    found, wanted = drawn(12)
    record = OutputMetrics(MEASURES).update(found, wanted)
    alone = OutputMetrics(MEASURES[:1]).update(found, wanted)
    np.testing.assert_array_equal(record.margins, alone.margins)  # type: ignore[union-attr]
    metric = OutputMetrics([MEASURES[3], MEASURES[1]])
    values = metric.update(found, wanted).values  # type: ignore[union-attr]
    gaps = metric.gaps(values, values, np.arange(12))
    assert gaps is not None
    assert gaps.changes == 0
    assert metric.effect(values, values) == pytest.approx(1 / metric.compute())


def test_figures_of_single_properties() -> None:
    metric = OutputMetrics([{"outputs": ["y"], "kind": "auc"}, MEASURES[1]])
    found, wanted = drawn(8)
    scores = np.linspace(0, 1, 8)
    found = [{**one, "y": np.array([score, -score])} for one, score in zip(found, scores, strict=True)]
    wanted = [{**one, "y": np.array([place > 3, place > 3])} for place, one in enumerate(wanted)]
    metric.update(found, wanted)
    assert [figures["roc_auc"] for figures in metric.per_class().values()] == [1, 0]
    assert metric.compute() == 0.5
    assert metric.smoothed(metric._all()) is None


def test_two_scores_of_one_property() -> None:
    metric = OutputMetrics([{"outputs": ["y"], "kind": "auc"}])
    metric.update(
        [{"y": np.array([0.9, 0.1])}, {"y": np.array([0.2, 0.8])}, {"y": np.array([0.6, 0.4])}],
        [{"y": np.array(0)}, {"y": np.array(1)}, {"y": np.array(1)}],
    )
    assert metric.compute() == 1


def test_auc_needs_0_and_1() -> None:
    metric = OutputMetrics([{"outputs": ["y"], "kind": "auc"}])
    with pytest.raises(DataError, match=r"'y'.*2 must be 0 or 1"):
        metric.update([{"y": np.array([0.9])}], [{"y": np.array(2)}])


def test_errors_name_the_output() -> None:
    for kind in ("rmse", "topk", "topk_of_positions", "auc"):
        metric = OutputMetrics([{"outputs": ["deep"], "kind": kind, "k": 1}])
        with pytest.raises(DataError, match="'deep'"):
            metric.update([{"deep": np.ones((3, 4))}], [{"deep": np.ones((5, 5), np.int64)}])
    with pytest.raises(ConfigError, match="'best'"):
        OutputMetrics([{"outputs": ["y"], "kind": "best"}])
