"""AUC, log loss and GAUC: scikit-learn's values, any weights, and exact merging."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from engine import ConfigError, InputError
from utils.datasets.tabular.clicks import Click
from utils.metrics.clicks import METRICS, Clicks

ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.4, 0.400001, 0.9, 1.0]), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


def seen(name: str, rows: list[tuple[float, bool, int]]) -> Clicks:
    metric = Clicks(name)
    metric.update([row[0] for row in rows], [Click(row[1], f"u{row[2]}") for row in rows])
    return metric


def by_sklearn(name: str, rows: list[tuple[float, bool, int]]) -> float:
    scores, clicked = np.array([row[0] for row in rows], np.float32), np.array([row[1] for row in rows])
    if name == "log_loss":
        return float(log_loss(clicked, scores, labels=[False, True]))
    if name == "auc":
        return float(roc_auc_score(clicked, scores)) if 0 < clicked.sum() < len(clicked) else math.nan
    parts = [[row for row in rows if row[2] == user] for user in range(4)]
    kept = [part for part in parts if len({row[1] for row in part}) == 2]
    if not kept:
        return math.nan
    return float(np.average([by_sklearn("auc", part) for part in kept], weights=[len(part) for part in kept]))


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_values_equal_scikit_learn(name: str, rows: list[tuple[float, bool, int]]) -> None:
    np.testing.assert_allclose(seen(name, rows).compute(), by_sklearn(name, rows), rtol=1e-6)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=30, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_a_weight_repeats_a_row(name: str, rows: list[tuple[float, bool, int]], chance: object) -> None:
    weights = [chance.randint(0, 3) for _ in rows]  # type: ignore[attr-defined]
    repeated = [row for row, weight in zip(rows, weights, strict=True) for _ in range(weight)]
    metric = Clicks(name)
    records = metric.records([row[0] for row in rows], [Click(row[1], f"u{row[2]}") for row in rows])
    found = metric.value(records, np.array(weights, np.float64))
    expected = seen(name, repeated).compute() if repeated else math.nan
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_exact_merge(name: str) -> None:
    chance = np.random.default_rng(0)
    rows = [(float(chance.random()), bool(chance.random() < 0.4), int(chance.integers(4))) for _ in range(200)]
    whole, one, other = seen(name, rows), seen(name, rows[120:]), seen(name, rows[:120])
    one.merge(other)
    assert one.compute() == whole.compute()
    assert one.secondary() == whole.secondary()
    assert whole.higher_is_better == (name != "log_loss")


def test_the_baseline_needs_a_value_for_every_row() -> None:
    metric = Clicks()
    metric.update([0.2, 0.8, 0.5], [Click(False, "a", 0.9), Click(True, "a", 0.1), Click(True, "b", 0.1)])
    assert metric.compute() == 1
    figures = metric.secondary()
    assert (figures["item_mean_auc"], figures["gauc"], figures["users_of_both_kinds"]) == (0, 1, 1)
    metric.update([0.5], [Click(True)])
    assert "item_mean_auc" not in metric.secondary()


def test_rows_without_a_user_are_skipped() -> None:
    metric = Clicks()
    metric.update([0.2, 0.8], [Click(False), Click(True)])
    assert "gauc" not in metric.secondary()
    gauc = Clicks("gauc")
    gauc.update([0.2, 0.8], [Click(False), Click(True)])
    assert math.isnan(gauc.compute())
    assert gauc.unknown().startswith("no user has rows")


def test_undefined_values_and_invalid_input() -> None:
    metric = Clicks()
    metric.update([0.2, 0.8], [Click(True, "a"), Click(True, "b")])
    assert math.isnan(metric.compute())
    assert metric.unknown().startswith("all 2 rows are clicked")
    with pytest.raises(ConfigError, match=r"'mse' .*auc, log_loss, gauc"):
        Clicks("mse")
    with pytest.raises(InputError, match="not a probability"):
        metric.update(["x"], [Click(True)])
    with pytest.raises(InputError, match="not a Click"):
        metric.update([0.1], [True])


def test_nan_scores_are_wrong() -> None:
    for clicked in (True, False):
        for name in ("auc", "gauc"):
            assert seen(name, [(math.nan, clicked, 0), (0.5, not clicked, 0)]).compute() == 0
