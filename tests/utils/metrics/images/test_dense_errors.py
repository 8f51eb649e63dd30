"""Errors of depth and disparity equal scikit-learn's and NumPy's formulas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.metrics.images.dense import DenseErrors, aligned, figures

SEEDS = st.integers(0, 2**32 - 1)


def values(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    wanted = chance.uniform(0.5, 90, count)
    return wanted * chance.uniform(0.5, 1.6, count), wanted


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 60))
def test_figures_equal_scikit_learn(seed: int, count: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found, wanted = values(seed, count)
    own = figures(found, wanted)
    assert own["abs_rel"] == pytest.approx(metrics.mean_absolute_percentage_error(wanted, found))
    assert own["rmse"] == pytest.approx(metrics.root_mean_squared_error(wanted, found))
    assert own["mae"] == own["epe"] == pytest.approx(metrics.mean_absolute_error(wanted, found))
    ratios = [max(one / other, other / one) for one, other in zip(found.tolist(), wanted.tolist(), strict=True)]
    assert own["delta1"] == pytest.approx(np.mean([ratio < 1.25 for ratio in ratios]))
    bad = [abs(a - b) > 3 and abs(a - b) / b > 0.05 for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]
    assert own["d1"] == pytest.approx(np.mean(bad))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(2, 60))
def test_scale_and_shift_are_those_of_the_least_squares(seed: int, count: int) -> None:
    found, wanted = values(seed, count)
    factors = np.linalg.lstsq(np.stack([found, np.ones(count)], 1), wanted, rcond=None)[0]
    np.testing.assert_allclose(aligned(found, wanted, "scale_shift"), factors[0] * found + factors[1], rtol=1e-7)
    assert np.median(aligned(found, wanted, "median")) == pytest.approx(np.median(wanted))


def test_values_that_are_all_equal() -> None:
    np.testing.assert_allclose(aligned(np.ones(3), np.array([1.0, 2, 6]), "scale_shift"), 3)
    np.testing.assert_allclose(aligned(np.zeros(3), np.array([1.0, 2, 6]), "median"), 0)


def measured(metric: DenseErrors, maps: list[Any], truths: list[np.ndarray]) -> DenseErrors:
    metric.update(maps, [None] * len(maps), [SimpleNamespace(truth=one) for one in truths])
    return metric


def a_map(values: Any, confidence: Any = None) -> SimpleNamespace:
    return SimpleNamespace(values=np.array(values), confidence=confidence and np.array(confidence))


def test_only_known_pixels_in_the_range_count() -> None:
    truth = np.array([[0.0, 2, 4, 100]])
    metric = measured(DenseErrors("depth", "mae", most=80), [a_map([[9.0, 3, 4, 1]])], [truth])
    assert metric.compute() == pytest.approx(0.5)
    clipped = measured(DenseErrors("depth", "mae", most=80), [a_map([[9.0, 3, 500, 1]])], [truth])
    assert clipped.compute() == pytest.approx((1 + 76) / 2)
    with pytest.raises(DataError, match="--value_scale"):
        measured(DenseErrors("depth", most=1), [a_map([[9.0, 3, 4, 1]])], [truth])
    with pytest.raises(DataError, match="check the data"):
        measured(DenseErrors(), [a_map([[1.0]])], [truth])


@pytest.mark.parametrize("align", ["median", "scale_shift"])
def test_an_affine_inverse_is_exact_after_the_alignment(align: str) -> None:
    """MiDaS predicts the inverse depth up to a scale, and a shift that only the least squares find."""
    truth = np.random.default_rng(0).uniform(1, 10, (6, 7))
    found = 0.3 / truth + (0.1 if align == "scale_shift" else 0)
    metric = measured(DenseErrors("depth", "abs_rel", align, "inverse"), [a_map(found)], [truth])
    assert metric.compute() == pytest.approx(0, abs=1e-9)
    wrong = measured(DenseErrors("depth", "abs_rel", align, "same"), [a_map(found)], [truth])
    assert wrong.compute() > 0.1


def test_the_value_is_the_mean_over_images() -> None:
    truths = [np.array([[10.0, 10]]), np.array([[10.0, 0]])]
    maps = [a_map([[11.0, 13]], [[0.9, 0.1]]), a_map([[15.0, 99]], [[0.5, 0.9]])]
    metric = measured(DenseErrors("disparity"), maps, truths)
    assert (metric.name, metric.compute()) == ("epe", pytest.approx((2 + 5) / 2))
    assert metric.secondary() == pytest.approx({"d1": 0.5, "rmse": (np.sqrt(5) + 5) / 2, "epe_surest": (1 + 5) / 2})
    two = measured(measured(DenseErrors("disparity"), maps[1:], truths[1:]), maps[:1], truths[:1])
    assert two.compute() == metric.compute()
    assert not metric.higher_is_better
    assert DenseErrors("depth", "delta1").higher_is_better


@pytest.mark.parametrize(
    ("given", "named"),
    [(("flow",), "flow"), (("disparity", "abs_rel"), "epe, d1, rmse"), (("depth", "", "fit"), "fit")],
)
def test_wrong_options(given: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DenseErrors(*given)
