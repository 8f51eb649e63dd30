from __future__ import annotations

from math import inf, isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.measures import THRESHOLD, Difference, Measured, RunningCosine, differences, measure
from tecoinfer_modelzoo import native


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
def test_scaling_both_keeps_relative_values(values: list[float], factor: float) -> None:
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


def test_a_part_of_another_shape_counts_as_zeros_and_nan_never_matches() -> None:
    one, running = np.ones((2, 2), np.float16), RunningCosine()
    assert running.cosine == 1  # nothing differs yet
    running.add(one, one)
    running.add(one[:1], one)
    assert running.cosine == pytest.approx(0.5**0.5)
    running.add(np.full((2, 2), np.nan), one)
    assert running.cosine == 0


def both(value: np.ndarray, reference: np.ndarray, threshold: float, half: bool) -> list[Measured]:
    """Return what the extension finds (on each of its levels), and last what NumPy finds."""
    extension = native.sums()
    assert extension is not None
    found = []
    for level in (*range(extension.level() + 1), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TECO_NATIVE", "1" if level is not None else "0")
            patch.setattr("engine.measures._level", lambda level=level: level)
            one = Measured(threshold, half)
            for _ in range(2):
                one.add(value, reference)
        found.append(one)
    return found


needs_extension = pytest.mark.skipif(native.sums() is None, reason="the C extension is not built or not used")


@needs_extension
@pytest.mark.parametrize("size", [*range(1, 10), 1001, 40_000])
@pytest.mark.parametrize("half", [False, True])
def test_extension_finds_what_numpy_finds(size: int, half: bool) -> None:
    rng = np.random.default_rng(size)
    reference = (rng.standard_normal(size) * 10.0 ** rng.integers(-9, 6, size)).astype(np.float32)
    value = (reference * (1 + 1e-3 * rng.standard_normal(size))).astype(np.float32)
    value[::3], reference[::5] = 0, 0
    *found, wanted = both(value, reference, THRESHOLD["float16" if half else "float32"], half)
    assert len(found) >= 1
    for one in found:
        assert (one.value, one.reference) == (wanted.value, wanted.reference)
        for name in Difference.__slots__:
            assert getattr(one.difference, name) == pytest.approx(getattr(wanted.difference, name), rel=1e-12)


@needs_extension
@pytest.mark.parametrize("strange", [nan, inf, -inf])
@pytest.mark.parametrize("where", ["value", "reference", "both"])
def test_extension_leaves_what_is_not_finite_to_numpy(strange: float, where: str) -> None:
    extension = native.sums()
    assert extension is not None
    for place in range(9):
        value, reference = np.ones(9, np.float32), np.full(9, 2, np.float32)
        for array, name in ((value, "value"), (reference, "reference")):
            if where in (name, "both"):
                array[place] = strange
        for level in range(extension.level() + 1):
            assert extension.compare(value, reference, 1e-6, 65504.0, level) is None
        *found, wanted = both(value, reference, 1e-6, True)
        for one in found:
            assert repr(one.value) == repr(wanted.value)  # NaN is not equal to itself
            assert repr(one.reference) == repr(wanted.reference)
            assert repr(one.difference) == repr(wanted.difference)


@needs_extension
def test_extension_refuses_what_it_cannot_read() -> None:
    extension = native.sums()
    assert extension is not None
    one, two = np.ones(2, np.float32), np.ones(3, np.float32)
    for value, reference, level in ((one, two, 0), (one, one.astype(np.float64)[:1], 0), (one, one, 9), (one, one, -1)):
        with pytest.raises(ValueError, match=r"must be float32|does not have that level"):
            extension.compare(value, reference, 1e-6, 1.0, level)
    strided = np.ones((4, 4), np.float32)[:, ::2]
    with pytest.raises((ValueError, BufferError)):
        extension.compare(strided, strided, 1e-6, 1.0, 0)
    assert differences([strided], strided, 1e-6)[0].diff2 == 0  # by NumPy
    single = [extension.compare(one, one, 1e-6, 1.0, level) for level in range(extension.level() + 1)]
    assert all(found is not None and found[12] == 2 for found in single)  # both are at the largest magnitude
