"""Errors, cosine, PSNR and equality of arrays against scikit-learn, scikit-image's formula and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sk

from engine import Array, ConfigError, DataError
from utils.metrics.arrays.elements import MOST_DECIBELS, Cosine, ElementErrors, Equal, Psnr
from utils.metrics.base import Metric

VALUES = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
PAIRS = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(arrays(np.float64, shape, elements=VALUES), arrays(np.float64, shape, elements=VALUES))
)


def computed(metric: Metric, found: Array, wanted: Array, step: int = 2) -> float:
    for start in range(0, len(found), step):
        metric.update(list(found[start : start + step]), list(wanted[start : start + step]))
    return metric.compute()


@given(PAIRS)
def test_errors_agree_with_scikit_learn(pair: tuple[Array, Array]) -> None:
    found, wanted = pair
    flat = wanted.ravel(), found.ravel()
    assert computed(ElementErrors("rmse"), found, wanted) == pytest.approx(sk.root_mean_squared_error(*flat), rel=1e-9)
    assert computed(ElementErrors("mae"), found, wanted) == pytest.approx(sk.mean_absolute_error(*flat), rel=1e-9)


@given(PAIRS)
def test_relative_errors_agree_where_the_expected_value_is_not_0(pair: tuple[Array, Array]) -> None:
    found, wanted = pair
    known = wanted != 0
    metric = ElementErrors("abs_rel")
    value = computed(metric, found, wanted)
    if known.any():
        assert value == pytest.approx(sk.mean_absolute_percentage_error(wanted[known], found[known]), rel=1e-9)
    else:
        assert math.isnan(value)
        assert "mae" in metric.unknown()


@given(PAIRS, st.data())
def test_a_weight_repeats_a_sample(pair: tuple[Array, Array], data: st.DataObject) -> None:
    found, wanted = pair
    counts = data.draw(arrays(np.int64, len(found), elements=st.integers(1, 3)))
    again = np.repeat(found, counts, axis=0), np.repeat(wanted, counts, axis=0)
    for metric, other in ((ElementErrors("rmse"), ElementErrors("rmse")), (Cosine(), Cosine()), (Psnr(), Psnr())):
        records = np.asarray(metric.records(list(found), list(wanted)))
        assert metric.value(records, counts.astype(float)) == pytest.approx(computed(other, *again), rel=1e-9, abs=1e-9)


@given(PAIRS)
def test_cosine_agrees_with_scikit_learn(pair: tuple[Array, Array]) -> None:
    found, wanted = (one.reshape(len(one), -1) for one in pair)
    expected = np.diag(sk.pairwise.cosine_similarity(found, wanted)).copy()
    expected[~found.any(axis=1) & ~wanted.any(axis=1)] = 1  # scikit-learn has 0 for two vectors of zeros
    assert computed(Cosine(), *pair) == pytest.approx(expected.mean(), abs=1e-9)


def test_cosine_of_huge_and_tiny_vectors() -> None:
    found = np.array([[3e200, 4e200], [3e-200, 4e-200], [0, 0]])
    wanted = np.array([[3e200, 4e200], [4e-200, -3e-200], [1, 0]])
    assert Cosine().records(list(found), list(wanted)).tolist() == pytest.approx([1, 0, 0], abs=1e-12)


@given(PAIRS, st.sampled_from([1.0, 255.0]))
def test_psnr_is_the_formula_of_each_sample(pair: tuple[Array, Array], peak: float) -> None:
    found, wanted = pair
    errors = ((found - wanted) ** 2).reshape(len(found), -1).mean(axis=1)
    with np.errstate(divide="ignore"):
        ratios = 10 * np.log10(peak**2 / errors)
    assert computed(Psnr(peak), found, wanted) == pytest.approx(np.minimum(ratios, MOST_DECIBELS).mean(), rel=1e-9)


@given(PAIRS, st.sampled_from([0.0, 0.01, 0.5]))
def test_equal_is_the_relative_error_of_each_sample(pair: tuple[Array, Array], tolerance: float) -> None:
    found, wanted = pair
    right = [
        bool(np.abs(one - other).max() <= tolerance * np.abs(other).max())
        for one, other in zip(found, wanted, strict=True)
    ]
    metric = Equal(tolerance)
    record = metric.records(list(found), list(wanted))
    near = [abs(margin) < 1e-12 for margin in record.margins]
    assert all(one == other or close for one, other, close in zip(record.values, right, near, strict=True))
    assert ((record.margins >= 0) == record.values).all()


def test_equal_with_infinities_nan_and_zeros() -> None:
    inf, nan = np.inf, np.nan
    found = [[1, inf], [1, -inf], [1, nan], [0, 0], [0, 1e-9], [1, inf]]
    wanted = [[1.005, inf], [1, inf], [1, 2], [0, 0], [0, 0], [2, inf]]
    record = Equal(0.01).records([*map(np.array, found)], [np.array(one, np.float64) for one in wanted])
    assert record.values.tolist() == [True, False, False, True, False, False]


def test_integers_must_be_equal_at_any_tolerance() -> None:
    metric = Equal(0.5)
    wanted = [np.array([1000, 7]), np.array([1000, 7])]
    assert metric.records([np.array([1000, 7]), np.array([1001, 7])], wanted).values.tolist() == [True, False]


def test_all_outputs_of_a_sample_must_be_equal() -> None:
    right = [np.ones(3), np.array(2)]
    found = [right, [np.ones(3), np.array(3)], [np.ones(3) * 1.2, np.array(2)]]
    assert Equal(0.1).records(found, [right] * 3).values.tolist() == [True, False, False]


def test_directions() -> None:
    higher = {type(one).__name__: one.higher_is_better for one in (ElementErrors(), Cosine(), Psnr(), Equal())}
    assert higher == {"ElementErrors": False, "Cosine": True, "Psnr": True, "Equal": True}


def test_flat_targets_and_axes_of_length_1() -> None:
    found = [np.arange(6.0).reshape(1, 2, 3)]
    for wanted in (np.arange(6.0), np.arange(6.0).reshape(2, 3)):
        assert computed(ElementErrors("mae"), np.array(found), np.array([wanted])) == 0


@pytest.mark.parametrize("metric", [ElementErrors(), Cosine(), Psnr(), Equal()])
def test_other_shapes_are_refused(metric: Metric) -> None:
    with pytest.raises(DataError, match=r"2x3.*3x2"):
        metric.update([np.ones((2, 3))], [np.ones((3, 2))])


def test_wrong_options() -> None:
    for make in (lambda: ElementErrors("r2"), lambda: Psnr(0), lambda: Psnr(math.nan), lambda: Equal(-1)):
        with pytest.raises(ConfigError):
            make()
