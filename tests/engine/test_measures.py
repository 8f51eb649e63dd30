from __future__ import annotations

from math import inf, isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.measures import THRESHOLD, RunningCosine, differences, measure


def figures(value: object, reference: object, threshold: float = 1e-6, dtype: type = np.float32) -> object:
    return measure(np.array(value, dtype), np.array(reference, dtype), threshold, False)[0]


def test_by_hand() -> None:
    # errors 1, 0, 2; references 1, 2, 4
    found = figures([2, 2, 2], [1, 2, 4])
    assert found.diff1 == pytest.approx(3 / 7)
    assert found.diff2 == pytest.approx(sqrt(5 / 21))
    assert found.diff3_max == pytest.approx(1.0)
    assert found.diff3_mean == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.cosine == pytest.approx(14 / sqrt(12 * 21))
    assert found.mismatched == 0


def test_diff3_is_absolute_up_to_the_threshold() -> None:
    small = 5e-5  # above float32's threshold, below float16's
    assert figures([2 * small], [small]).diff3_max == pytest.approx(1.0, rel=1e-6)
    assert figures([2 * small], [small], THRESHOLD["float16"]).diff3_max == pytest.approx(small, rel=1e-6)
    assert (THRESHOLD["float32"], THRESHOLD["float16"]) == (1e-6, 1e-4)
    assert figures([0.25], [0]).diff3_max == 0.25


def test_zero_references() -> None:
    same, other = figures([0, 0], [0, 0]), figures([0, 1], [0, 0])
    assert (same.cosine, same.diff1, same.diff2, same.diff3_max) == (1, 0, 0, 0)
    assert (other.cosine, other.diff1, other.diff2, other.diff3_max, other.diff3_mean) == (0, inf, inf, 1, 0.5)


def test_nan_and_infinity() -> None:
    same = figures([nan, inf, -inf, 1], [nan, inf, -inf, 2])
    assert (same.mismatched, same.diff1) == (0, 0.5)
    other = figures([nan, inf, 1], [1, -inf, 1])
    assert (other.mismatched, other.diff1, other.diff2, other.diff3_mean) == (2, inf, inf, inf)
    assert isnan(other.cosine)


def test_census() -> None:
    value = np.array([nan, inf, -inf, 65504, -65504, 0, 0, 3], np.float32)
    reference = np.array([1, 1, 1, 65504, 1, 0, 1e-9, 3], np.float32)
    _, half = measure(value, reference, 1e-4, True)
    assert (half.nan, half.infinite, half.saturated, half.flushed) == (1, 2, 2, 1)
    assert (half.minimum, half.maximum) == (-65504, 65504)
    assert measure(value, reference, 1e-4, False)[1].saturated == 0


def test_other_dtypes_and_shapes() -> None:
    assert figures([True, False], [True, True], dtype=np.bool_).diff1 == 0.5
    assert figures([2**53 + 2], [2**53], dtype=np.int64).diff1 == pytest.approx(2 / 2**53)
    assert figures(3.0, 4.0).diff1 == 0.25
    empty, value_stats = measure(np.zeros((0, 3)), np.zeros((0, 3)), 1e-6, False)
    assert (empty.cosine, empty.diff1, empty.diff3_mean) == (1, 0, 0)
    assert isnan(value_stats.minimum)


def test_sums_are_in_float64() -> None:
    # float32 would stop counting at 2**24
    ones = np.ones(2**24 + 2**16, np.float32)
    assert measure(2 * ones, ones, 1e-6, False)[0].diff1 == 1.0


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30), st.floats(0.5, 2))
def test_scaling_both_changes_nothing_relative(values: list[float], factor: float) -> None:
    reference = np.array(values, np.float64) + 1e4
    found, scaled = (figures(k * reference * 1.01, k * reference, dtype=np.float64) for k in (1, factor))
    assert found.diff1 == pytest.approx(scaled.diff1, rel=1e-6)
    assert found.diff2 == pytest.approx(0.01, rel=1e-6)
    assert found.cosine == pytest.approx(1)


def test_a_cosine_of_parts_is_that_of_the_whole() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 10, 3000))
    running = RunningCosine()
    for got, want in zip(a, b, strict=True):
        running.add(got, want)
    assert running.cosine == pytest.approx(differences([a], b, 0.0)[0].cosine)


def test_a_part_of_another_shape_counts_as_zeros_and_nan_as_nothing_alike() -> None:
    one, running = np.ones((2, 2), np.float16), RunningCosine()
    assert running.cosine == 1  # nothing differs yet
    running.add(one, one)
    running.add(one[:1], one)
    assert running.cosine == pytest.approx(0.5**0.5)
    running.add(np.full((2, 2), np.nan), one)
    assert running.cosine == 0
