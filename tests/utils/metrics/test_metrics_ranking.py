"""nDCG, recall, reciprocal rank and average precision agree with pytrec_eval (trec_eval), including ties."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, InputError
from utils.metrics.ranking import Ranking


class Found(NamedTuple):
    ids: list[str]
    scores: list[float]


DOCS = [f"d{i}" for i in range(15)] + ["D1", "é"]
QUERY = st.tuples(
    st.dictionaries(st.sampled_from(DOCS), st.integers(-1, 4), min_size=1, max_size=8),
    st.dictionaries(
        st.sampled_from(DOCS), st.sampled_from([0.0, 0.1, 0.1 + 1e-9, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=17
    ),
)
QUERIES = st.lists(QUERY, min_size=1, max_size=5)


@given(QUERIES, st.sampled_from([1, 3, 10]))
@settings(max_examples=60, deadline=None)
def test_agrees_with_trec_eval(queries: list[tuple[dict[str, int], dict[str, float]]], cut: int) -> None:
    import pytrec_eval

    qrels = {str(i): grades for i, (grades, _) in enumerate(queries)}
    run = {str(i): scores for i, (_, scores) in enumerate(queries)}
    measures = {f"ndcg_cut.{cut}", f"recall.{cut}", "map", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    for figure in ("ndcg", "recall", "map", "mrr"):
        metric = Ranking(figure, cut)
        metric.update([Found([*s], [*s.values()]) for _, s in queries], [g for g, _ in queries])
        name = {"ndcg": f"ndcg_cut_{cut}", "recall": f"recall_{cut}", "map": "map", "mrr": "recip_rank"}[figure]
        values = [theirs[str(i)][name] for i in range(len(queries))]
        if figure == "mrr":
            values = [value if value >= 1 / cut - 1e-9 else 0.0 for value in values]
        assert metric.compute() == pytest.approx(np.mean(values), abs=1e-9)


def test_weights_repeat_queries() -> None:
    metric = Ranking()
    found = [Found(["a", "b"], [0.9, 0.1]), Found(["a", "b"], [0.1, 0.9])]
    records = metric.records(found, [{"a": 1}, {"a": 1}])
    assert metric.value(records, np.array([1.0, 0.0])) == 1.0
    assert metric.value(records, np.array([1.0, 1.0])) == pytest.approx((1 + 1 / np.log2(3)) / 2)
    metric.update(found, [{"a": 1}, {"a": 1}])
    beside = metric.secondary()
    assert beside["mrr10"] == 0.75
    assert beside["recall1"] == 0.5
    assert set(beside) == {"mrr10", "map", "recall1", "recall5", "recall10", "recall100"}


def test_nan_scores_and_duplicate_documents() -> None:
    metric = Ranking("map")
    assert np.isnan(metric.records([Found(["a"], [np.nan])], [{"a": 1}])).all()
    with pytest.raises(InputError, match="each document once"):
        metric.records([Found(["a", "a"], [0.1, 0.2])], [{"a": 1}])
    with pytest.raises(ConfigError, match="precision"):
        Ranking("precision")
    with pytest.raises(ConfigError, match="--cut 0"):
        Ranking("ndcg", 0)
