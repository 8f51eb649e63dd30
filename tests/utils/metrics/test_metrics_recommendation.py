"""Metrics of recommendations: scikit-learn's nDCG, the hit rate, and the popular items as baseline."""

from __future__ import annotations

import numpy as np
import pytest

from utils.metrics.base import Records
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.metrics.ranking import Ranking
from utils.metrics.recommendation import Recommendations
from utils.tasks.common.ranked import Found
from utils.tasks.item_recommendation.task import Recommended


def _made(users: int, items: int) -> tuple[list[Recommended], list[dict[str, int]], np.ndarray, np.ndarray]:
    chance = np.random.default_rng(3)
    scores, right = chance.permuted(np.tile(np.arange(items), (users, 1)), axis=1), chance.random((users, items)) < 0.1
    right[:, 0] |= ~right.any(axis=1)
    names = [f"i{n}" for n in range(items)]
    popular = Found(names, -np.arange(items, dtype=np.float32), [])
    predictions = []
    for row in scores:
        order = np.argsort(-row)
        ranked = Found([names[i] for i in order], row[order].astype(np.float32), [])
        predictions.append(Recommended(ranked, popular, []))
    targets = [{names[i]: 1 for i in np.flatnonzero(row)} for row in right]
    return predictions, targets, scores, right


@pytest.mark.slow
def test_ndcg_equals_scikit_learn_also_for_the_baseline() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    predictions, targets, scores, right = _made(40, 50)
    metric = Recommendations("ndcg", 10)
    metric.update(predictions, targets)
    assert metric.compute() == pytest.approx(sklearn.ndcg_score(right, scores, k=10))
    popular = np.tile(-np.arange(50), (40, 1))
    figures = metric.secondary()
    assert figures["popular_ndcg10"] == pytest.approx(sklearn.ndcg_score(right, popular, k=10))
    first = np.array([np.flatnonzero(row[np.argsort(-score)])[0] + 1 for row, score in zip(right, scores, strict=True)])
    assert figures["mrr10"] == pytest.approx(np.where(first <= 10, 1 / first, 0).mean())
    assert {"recall10", "map", "popular_mrr10", "popular_recall10"} <= set(figures)
    assert "ndcg10" not in figures


def test_recall_of_one_relevant_item_is_the_hit_rate() -> None:
    predictions, _, scores, _ = _made(30, 20)
    targets = [{"i4": 1}] * 30
    metric = Recommendations("recall", 5)
    metric.update(predictions, targets)
    ranks = (scores > scores[:, 4:5]).sum(axis=1)
    assert metric.compute() == pytest.approx((ranks < 5).mean())
    assert metric.secondary()["popular_recall5"] == 1.0


def test_definition_as_json(tmp_path: object) -> None:
    predictions, targets, _, _ = _made(12, 20)
    whole, first = Recommendations("mrr", 3), Recommendations("mrr", 3)
    records = whole.update(predictions, targets)
    second = metric_from_json(metric_to_json(whole), tmp_path)  # type: ignore[arg-type]
    first.update(predictions[:5], targets[:5])
    second.update(predictions[5:], targets[5:])
    first.merge(second)  # type: ignore[arg-type]
    assert first.compute() == whole.compute()
    assert isinstance(records, Records)
    assert whole.value(records.values, np.ones(12)) == pytest.approx(whole.compute())


def test_margins_are_those_of_the_models_ranking() -> None:
    predictions, targets, _, _ = _made(12, 20)
    found = Recommendations("ndcg", 3).records(predictions, targets)
    own = Ranking("ndcg", 3).records(predictions, targets)
    assert np.array_equal(found.margins, own.margins)
    assert Recommendations.has_margins
