"""Splits of ratings: disjoint parts, and no test row before training rows."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError
from utils.datasets.tabular.splits import HOWS, TEST, TRAIN, VALID, split

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_leave_one_out_equals_sorting_each_user(rows: list[tuple[int, int]]) -> None:
    users, times = columns(rows)
    parts = split(users, times, "leave_one_out").tolist()
    expected = [TRAIN] * len(rows)
    for user in {row[0] for row in rows}:
        own = sorted((time, place) for place, (who, time) in enumerate(rows) if who == user)
        if len(own) > 1:
            expected[own[-1][1]] = TEST
        if len(own) > 2:
            expected[own[-2][1]] = VALID
    assert parts == expected


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(("random", "temporal")))
def test_shares_of_parts_and_order_of_time(rows: list[tuple[int, int]], how: str) -> None:
    users, times = columns(rows)
    parts = split(users, times, how, seed=3, shares=(0.5, 0.25, 0.25))
    assert parts.dtype == np.int8
    assert (parts == TEST).sum() == int(len(rows) / 4 + 0.5)
    if how == "temporal":
        keys = [(time, place) for place, (_, time) in enumerate(rows)]
        in_order = [part for _, part in sorted(zip(keys, parts.tolist(), strict=True))]
        assert in_order == sorted(in_order)


def test_random_depends_on_the_seed() -> None:
    users, times = np.zeros(100, np.int64), np.zeros(100)
    one = split(users, times, "random", seed=1)
    assert (one == split(users, times, "random", seed=1)).all()
    assert (one != split(users, times, "random", seed=2)).any()
    assert [(one == part).sum() for part in (TRAIN, VALID, TEST)] == [80, 10, 10]
    first = np.random.default_rng(1).permutation(100)[:10]
    assert set(first.tolist()) == set(np.flatnonzero(one == TEST).tolist())


@pytest.mark.parametrize("how", HOWS)
def test_no_rows(how: str) -> None:
    assert split(np.zeros(0, np.int64), np.zeros(0), how).tolist() == []


def test_invalid_splits() -> None:
    users, times = np.zeros(3, np.int64), np.array([0.0, np.nan, 1.0])
    assert len(split(users, times, "random")) == 3
    for how in ("temporal", "leave_one_out"):
        with pytest.raises(ConfigError, match=r"1 of 3 .*--split"):
            split(users, times, how)
    with pytest.raises(ConfigError, match=r"'by_user' .*random, leave_one_out, temporal"):
        split(users, times, "by_user")
    for shares in ((0.8, 0.1), (0.9, 0.2, -0.1), (0.5, 0.1, 0.1)):
        with pytest.raises(ConfigError, match="must be three numbers"):
            split(users, times, "random", shares=shares)
    with pytest.raises(ConfigError, match="one of each per row"):
        split(users, times[:2], "random")
