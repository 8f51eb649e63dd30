"""Spearman and Pearson agree with scipy, including ties and weights."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, InputError
from utils.metrics.correlation import Correlation

NUMBERS = st.lists(
    st.tuples(st.integers(-4, 4), st.one_of(st.integers(0, 5), st.floats(-1e3, 1e3, allow_nan=False))),
    min_size=2,
    max_size=30,
)


def _value(kind: str, scores: list[float], ratings: list[float]) -> float:
    metric = Correlation(kind)
    metric.update(scores, ratings)
    return metric.compute()


@given(NUMBERS)
@settings(max_examples=60, deadline=None)
def test_agrees_with_scipy(pairs: list[tuple[float, float]]) -> None:
    from scipy import stats

    scores, ratings = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    if len(set(scores)) == 1 or len(set(ratings)) == 1:
        assert math.isnan(_value("spearman", scores, ratings))
        return
    assert _value("spearman", scores, ratings) == pytest.approx(stats.spearmanr(scores, ratings)[0], abs=1e-9)
    if np.ptp(ratings) > 1e-6:  # below this scipy warns about lost digits
        assert _value("pearson", scores, ratings) == pytest.approx(stats.pearsonr(scores, ratings)[0], abs=1e-9)


@given(NUMBERS, st.data())
@settings(max_examples=40, deadline=None)
def test_weights_repeat_samples(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    repeated = [pair for pair, times in zip(pairs, weights, strict=True) for _ in range(times)]
    for kind in ("spearman", "pearson"):
        metric = Correlation(kind)
        records = metric.records([a for a, _ in pairs], [float(b) for _, b in pairs])
        found = metric.value(records, np.array(weights, float))
        whole = metric.records([a for a, _ in repeated], [float(b) for _, b in repeated])
        wanted = metric.value(whole, np.ones(len(repeated)))
        assert found == pytest.approx(wanted, abs=1e-9, nan_ok=True)


def test_merge_in_any_order() -> None:
    rng = np.random.default_rng(0)
    scores, ratings = rng.random(50), rng.integers(0, 6, 50).astype(float)
    whole, parts = Correlation(), [Correlation(), Correlation()]
    whole.update(list(scores), list(ratings))
    parts[0].update(list(scores[30:]), list(ratings[30:]))
    parts[1].update(list(scores[:30]), list(ratings[:30]))
    parts[0].merge(parts[1])
    assert parts[0].compute() == whole.compute()
    assert set(whole.secondary()) == {"pearson"}


def test_undefined_values_and_invalid_input() -> None:
    metric = Correlation()
    metric.update([0.5, 0.7], [3.0, 3.0])
    assert math.isnan(metric.compute())
    assert "all 2 ratings are 3" in metric.unknown()
    lost = Correlation()
    lost.update([math.nan, 0.7], [3.0, 2.0])
    assert math.isnan(lost.compute())
    with pytest.raises(ConfigError, match="kendall"):
        Correlation("kendall")
    with pytest.raises(InputError, match="not a rating"):
        metric.update([0.1], ["high"])
