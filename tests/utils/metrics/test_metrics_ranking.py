"""nDCG, recall, reciprocal rank and average precision agree with pytrec_eval (trec_eval), including ties."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, InputError
from utils.metrics.ranking import Ranking, margin


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
    records = metric.records(found, [{"a": 1}, {"a": 1}]).values
    assert metric.value(records, np.array([1.0, 0.0])) == 1.0
    assert metric.value(records, np.array([1.0, 1.0])) == pytest.approx((1 + 1 / np.log2(3)) / 2)
    metric.update(found, [{"a": 1}, {"a": 1}])
    beside = metric.secondary()
    assert beside["mrr10"] == 0.75
    assert beside["recall1"] == 0.5
    assert set(beside) == {"mrr10", "map", "recall1", "recall5", "recall10", "recall100"}


def test_nan_scores_and_duplicate_documents() -> None:
    metric = Ranking("map")
    unknown = metric.records([Found(["a"], [np.nan])], [{"a": 1}])
    assert np.isnan(unknown.values).all()
    assert np.isnan(unknown.margins).all()
    with pytest.raises(InputError, match="each document once"):
        metric.records([Found(["a", "a"], [0.1, 0.2])], [{"a": 1}])
    with pytest.raises(ConfigError, match="precision"):
        Ranking("precision")
    with pytest.raises(ConfigError, match="--cut 0"):
        Ranking("ndcg", 0)


# ------------------------------------------------------------------------------------------------------------- margins


def _pairs_margin(scores: dict[str, float], grades: dict[str, int], cut: int | None) -> float:
    """Smallest gap over all pairs of documents of different grades, of which the better one ranks up to the cut."""
    order = sorted(scores, key=lambda name: (np.float32(scores[name]), name.encode()), reverse=True)
    gains = [max(0, grades.get(name, 0)) for name in order]
    values = [float(np.float32(scores[name])) for name in order]
    last = len(order) if cut is None else cut
    gaps = [
        values[one] - values[other]
        for one in range(min(last, len(order)))
        for other in range(one + 1, len(order))
        if gains[one] != gains[other]
    ]
    return min(gaps, default=np.inf)


@given(QUERY, st.sampled_from([1, 3, 10, None]))
def test_margin_equals_that_of_all_pairs(query: tuple[dict[str, int], dict[str, float]], cut: int | None) -> None:
    grades, scores = query
    assert margin(Found([*scores], [*scores.values()]), grades, cut) == _pairs_margin(scores, grades, cut)


@given(QUERY, st.sampled_from([1, 3, 10]), st.integers(0, 2**32 - 1))
def test_noise_below_half_the_margin_keeps_ndcg(
    query: tuple[dict[str, int], dict[str, float]], cut: int, seed: int
) -> None:
    grades, scores = query
    found = Found([*scores], [float(np.float32(score)) for score in scores.values()])
    metric = Ranking("ndcg", cut)
    before = metric.records([found], [grades])
    assert before.margins is not None
    room = min(float(before.margins[0]), 100.0) * 0.49
    noise = np.random.default_rng(seed).choice([-room, room], len(scores))
    if room < 1e-6:  # float32 has no numbers between
        noise[:] = 0
    moved = Found(found.ids, [score + change for score, change in zip(found.scores, noise.tolist(), strict=True)])
    assert metric.records([moved], [grades]).values[0, 0] == before.values[0, 0]


@pytest.mark.parametrize(
    ("grades", "cut", "gap"),
    [
        ({"b": 1}, 10, 0.25),  # b is nearer to a than to c
        ({"a": 1}, 10, 0.25),
        ({"c": 1}, 10, 0.5),
        ({"c": 1}, 1, 0.75),  # c must pass a
        ({"a": 1, "b": 1}, 1, 0.75),
        ({"a": 1, "b": 1, "c": 1}, 10, np.inf),
        ({"x": 1}, 10, np.inf),
    ],
)
def test_a_swap_changes_ndcg_exactly_above_the_gap(grades: dict[str, int], cut: int, gap: float) -> None:
    scores = {"a": 1.0, "b": 0.75, "c": 0.25}
    metric = Ranking("ndcg", cut)

    def ndcg(**changes: float) -> float:
        moved = {name: score + changes.get(name, 0.0) for name, score in scores.items()}
        return float(metric.records([Found([*moved], [*moved.values()])], [grades]).values[0, 0])

    found = metric.records([Found([*scores], [*scores.values()])], [grades])
    assert found.margins is not None
    assert found.margins.tolist() == [gap]
    moves = [(name, sign) for name in scores for sign in (1, -1)]
    for share, changes in ((0.99, False), (1.01, gap < np.inf)):
        size = min(gap, 10.0) * share
        assert any(ndcg(**{name: sign * size}) != ndcg() for name, sign in moves) == changes


def test_ties_and_infinite_scores_have_a_margin_of_0() -> None:
    grades = {"c": 1}
    assert margin(Found(["a", "b", "c"], [1.0, 1.0, 1.0]), grades, 1) == 0
    assert margin(Found(["a", "c"], [np.inf, np.inf]), grades, 1) == 0
    assert margin(Found(["a", "c"], [np.inf, 0]), grades, 1) == np.inf
    assert margin(Found([], []), grades, 1) == np.inf
