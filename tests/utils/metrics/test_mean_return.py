"""The mean return: computed by hand, in any order, and its interval compared with the normal one."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from utils.metrics.returns import MeanReturn, interval


def episode(total: float, steps: int = 1, agreed: float = 0.0, recorded: int = 0) -> Any:
    return SimpleNamespace(total=total, steps=steps, agreed=agreed, recorded=recorded)


def measured(episodes: list[Any]) -> MeanReturn:
    metric = MeanReturn()
    metric.update(episodes, [0] * len(episodes))
    return metric


def test_by_hand() -> None:
    metric = measured([episode(-3, 4, 1, 2), episode(5, 6, 2, 2), episode(4, 5)])
    assert metric.compute() == 2
    found = metric.secondary()
    assert (found["mean_steps"], found["action_agreement"]) == (5, 0.75)
    assert found["sd"] == pytest.approx(math.sqrt(38 / 3))
    assert -3 <= found["low"] < 2 < found["high"] <= 5
    assert "action_agreement" not in measured([episode(1)]).secondary()


def test_the_interval_is_close_to_the_normal_one() -> None:
    values = np.random.default_rng(1).normal(10, 3, 400)
    half = 1.96 * values.std() / 20
    low, high = interval(values)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_nan_returns() -> None:
    metric = measured([episode(math.nan), episode(1)])
    assert math.isnan(metric.compute())
    assert math.isnan(metric.secondary()["low"])


@settings(max_examples=10)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.integers(1, 19))
def test_any_order_and_split(totals: list[float], cut: int) -> None:
    episodes = [episode(total, place) for place, total in enumerate(totals)]
    whole, first, second = measured(episodes), measured(episodes[cut:][::-1]), measured(episodes[:cut])
    first.merge(second)
    assert first.compute() == whole.compute()
    assert first.secondary() == whole.secondary()
