"""Perplexity over all tokens, not over texts; exact merging."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from utils.metrics.text.perplexity import Perplexity, Score

TEXTS = st.lists(st.tuples(st.floats(0, 50), st.integers(1, 40), st.integers(1, 99)), min_size=1, max_size=8)


def measured(scores: list[Score]) -> Perplexity:
    metric = Perplexity()
    metric.update(scores, ["text"] * len(scores))
    return metric


def test_perplexity_of_a_uniform_model() -> None:
    metric = measured([Score(7 * math.log(50), 7, 20), Score(3 * math.log(50), 3, 9)])
    assert metric.compute() == pytest.approx(50)
    assert metric.secondary() == pytest.approx(
        {"bits_per_byte": 10 * math.log2(50) / 29, "tokens": 10.0, "bytes": 29.0}
    )


def test_long_texts_weigh_more() -> None:
    assert measured([Score(0.0, 3, 3), Score(4 * math.log(2), 1, 1)]).compute() == pytest.approx(2)


@given(TEXTS, st.integers(0, 8))
def test_exact_merge(texts: list[tuple[float, int, int]], cut: int) -> None:
    scores = [Score(*one) for one in texts]
    whole, left = measured(scores), Perplexity()
    for part in (scores[cut:], scores[:cut]):
        if part:
            left.merge(measured(part))
    assert left.compute() == whole.compute()


def test_weights_repeat_texts() -> None:
    records = np.array([[2.0, 1.0, 4.0], [3.0, 2.0, 4.0]])
    assert Perplexity().value(records, np.array([2.0, 1.0])) == pytest.approx(math.exp(7 / 4))
    assert math.isnan(Perplexity().value(records, np.zeros(2)))


def test_probability_zero_gives_infinity() -> None:
    assert measured([Score(math.inf, 2, 4)]).compute() == math.inf
    assert measured([Score(1e6, 2, 4)]).compute() == math.inf
    assert not Perplexity.higher_is_better


def test_any_order_of_texts() -> None:
    scores = [Score(0.1 * i + 1 / 3, 7, 11) for i in range(40)]
    found = []
    for order in (scores, scores[::-1], scores[20:] + scores[:20]):
        metric = Perplexity()
        metric.update(order, [""] * len(order), None)
        found.append(metric.secondary())
    assert found[0] == found[1] == found[2]
