"""Metrics of frames: scikit-learn's values, weights, splits, NaN, and undefined values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, InputError
from utils.metrics.frames import RECORD, SPREAD, FrameScores


class Voice(NamedTuple):
    scores: np.ndarray
    said: np.ndarray


class Heard(NamedTuple):
    truth: np.ndarray


def batch(*recordings: tuple[list[float], list[bool]]) -> tuple[list[Voice], list[int], list[Heard]]:
    voices = [Voice(np.array(s, np.float32), np.array(s) >= 0.6) for s, _ in recordings]
    return voices, [0] * len(recordings), [Heard(np.array(t, bool)) for _, t in recordings]


@st.composite
def recordings(draw: st.DrawFn) -> list[tuple[list[float], list[bool]]]:
    found = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 20))
        scores = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=count, max_size=count))
        found.append((scores, draw(st.lists(st.booleans(), min_size=count, max_size=count))))
    return found


@settings(max_examples=25, deadline=None)
@given(recordings(), st.randoms(use_true_random=False))
def test_values_equal_scikit_learn(rows: list[tuple[list[float], list[bool]]], chance: object) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores = np.concatenate([np.array(s, np.float32) for s, _ in rows])
    truth = np.concatenate([np.array(t, bool) for _, t in rows])
    weights = np.array([chance.randint(0, 3) for _ in scores], float)  # type: ignore[attr-defined]
    auc, f1 = FrameScores(), FrameScores("f1", 0.5)
    for metric in (auc, f1):
        for row in rows:  # one batch each
            metric.update(*batch(row))
    if truth.all() or not truth.any():
        assert math.isnan(auc.compute())
        assert auc.unknown()
    else:
        assert auc.compute() == pytest.approx(sklearn.roc_auc_score(truth, scores))
        assert f1.secondary()["auc"] == pytest.approx(auc.compute())
    own = auc._all()
    if len({bool(one) for one, weight in zip(truth, weights, strict=True) if weight}) == 2:
        wanted = sklearn.roc_auc_score(truth, scores, sample_weight=weights)
        assert auc.value(own, weights) == pytest.approx(wanted)
    wanted = sklearn.f1_score(truth, scores >= 0.5, zero_division=math.nan)
    assert f1.compute() == pytest.approx(wanted, nan_ok=True)
    figures = auc.secondary()
    assert figures["f1"] == pytest.approx(wanted, nan_ok=True)
    for name, score in (("precision", sklearn.precision_score), ("recall", sklearn.recall_score)):
        assert figures[name] == pytest.approx(score(truth, scores >= 0.5, zero_division=math.nan), nan_ok=True)
    assert figures["answer_f1"] == pytest.approx(
        sklearn.f1_score(truth, scores >= 0.6, zero_division=math.nan), nan_ok=True
    )
    assert figures["share"] == pytest.approx(truth.mean())


@settings(max_examples=30, deadline=None)
@given(recordings())
def test_any_split_into_batches(rows: list[tuple[list[float], list[bool]]]) -> None:
    whole, one, other = FrameScores(), FrameScores(), FrameScores()
    whole.update(*batch(*rows))
    for place, row in enumerate(rows):
        (one, other)[place % 2].update(*batch(row))
    one.merge(other)
    assert one.compute() == whole.compute() or math.isnan(whole.compute())


def test_units_are_recordings() -> None:
    found = FrameScores().update(*batch(([0.1, 0.9], [False, True]), ([0.5], [True])))
    assert found.samples.tolist() == [0, 0, 1]  # type: ignore[union-attr]


def test_nan_is_wrong_at_every_threshold() -> None:
    metric, f1 = FrameScores(), FrameScores("f1")
    for one in (metric, f1):
        one.update(*batch(([math.nan, math.nan, 0.9, 0.1], [True, False, True, False])))
        one.update(*batch(([math.nan, math.nan], [True, False])))
    assert metric.compute() == pytest.approx(1 / 9)
    assert f1.compute() == pytest.approx(1 / 3)


def test_invalid_input() -> None:
    with pytest.raises(InputError, match=r"\(2,\) scores for \(1,\) frames"):
        FrameScores().update(*batch(([0.1, 0.2], [True])))
    with pytest.raises(ConfigError, match="one of auc, f1"):
        FrameScores("accuracy")


def test_the_smoothed_f1_is_near_the_mean_over_thresholds() -> None:
    rng = np.random.default_rng(0)
    records = np.zeros(20_000, RECORD)
    records["true"] = rng.random(len(records)) < 0.4
    records["score"] = rng.normal(0.4 + 0.2 * records["true"], 0.2)
    weights = rng.integers(0, 3, len(records)).astype(float)
    steps = 0.5 + SPREAD * np.linspace(-1, 1, 41)
    expected = np.mean([FrameScores("f1", step).value(records, weights) for step in steps])
    smoothed = FrameScores("f1").smoothed(records)
    assert smoothed is not None
    assert smoothed(weights) == pytest.approx(expected, rel=2e-3)
    moved = records.copy()
    moved["score"] -= np.where(records["true"], np.float32(1e-5), np.float32(-1e-5))
    worse = FrameScores("f1").smoothed(moved)
    assert worse is not None
    assert 0 < smoothed(weights) - worse(weights) < 1e-4
    assert math.isnan(smoothed(np.zeros(len(records))))
    assert FrameScores("auc").smoothed(records) is None
    records["score"][0] = np.nan
    assert FrameScores("f1").smoothed(records) is None
