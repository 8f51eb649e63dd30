"""Margins that follow from the records of two runs: their ratios, and their effect on each metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Array
from utils.metrics.base import Metric
from utils.metrics.clicks import RECORD as CLICK, Clicks
from utils.metrics.frames import RECORD as FRAME, FrameScores
from utils.metrics.gaps import POINTS, Gaps, curve_of, of_classes, of_threshold
from utils.metrics.graph_labels import RECORD as PROPERTY, GraphClasses, GraphLabels
from utils.metrics.speakers import SpeakerVerification
from utils.metrics.verification import RECORD as PAIR, Verification


def test_ratios() -> None:
    gaps = Gaps(np.array([1.5, 0, 0.25, -1]), np.array([1, 0, 0, 2.0]), np.array([0, 0, 0, 1], bool), np.arange(4))
    assert gaps.ratios().tolist() == [0.5, 0, 1, 1.5]


def test_the_curve_of_ratios() -> None:
    assert curve_of(np.array([0.5, 0, 2, 0.25])) == ((2.0, 0.25), (0.5, 0.5), (0.25, 0.75))
    assert curve_of(np.zeros(3)) == ()
    many = curve_of(np.linspace(0, 1, 1001))
    assert len(many) <= POINTS
    assert (many[0], many[-1]) == ((1.0, 1 / 1001), (0.001, 1000 / 1001))


def test_distances_from_a_threshold() -> None:
    ours, theirs = np.array([0.5, 0.25, np.inf]), np.array([0.75, 0.5, np.inf])
    found = of_threshold(ours, theirs, 0.5, np.arange(3))
    assert found is not None
    assert found.target.tolist() == [0, -0.25, np.inf]
    assert found.baseline.tolist() == [0.25, 0, np.inf]
    assert found.changed.tolist() == [False, True, False]
    endless = of_threshold(ours, theirs, np.array([np.inf, 0, np.inf]), np.arange(3))
    assert endless is not None
    assert endless.ratios().tolist() == [0, 0.5, 0]
    assert of_threshold(np.array([np.nan]), np.zeros(1), 0.5, np.arange(1)) is None


def test_gaps_between_classes() -> None:
    same = np.array([True, False, False, True, False])
    theirs = np.array([0.9, 0.1, 0.5, 0.5, np.inf])
    ours = theirs + np.array([0, 0, 0.125, 0, 0])
    found = of_classes(ours, theirs, same, np.stack([np.arange(5), 10 + np.arange(5)], 1))
    assert found is not None
    assert found.units.shape == (3, 4)
    assert set(found.units[:, 0]) == {0, 3}
    assert set(found.units[:, 2]) == {1, 2, 4}
    first, second = found.units[:, 0], found.units[:, 2]
    assert found.baseline.tolist() == (theirs[first] - theirs[second]).tolist()
    assert found.changed.tolist() == ((first == 3) & (second == 2)).tolist()
    assert found.weight == 2
    assert found.changes == 2 * found.changed.sum()
    assert of_classes(ours, theirs, np.ones(5, bool), np.arange(5)) is None


def test_the_gaps_are_a_sample_of_the_pairs_of_an_area() -> None:
    rng = np.random.default_rng(0)
    same = rng.random(3000) < 0.3
    scores = rng.normal(same)
    found = of_classes(scores, scores, same, np.arange(3000))
    assert found is not None
    assert len(found.baseline) == np.count_nonzero(~same)
    every = scores[same][:, None] > scores[~same]
    assert (found.baseline > 0).mean() == pytest.approx(every.mean(), abs=0.03)
    assert len(np.unique(found.units, axis=0)) == len(found.units)


def pairs(rng: np.random.Generator, size: int = 400) -> Array:
    found = np.zeros(size, PAIR)
    found["same"] = rng.random(size) < 0.4
    found["score"] = rng.normal(2 * found["same"])
    found["first"], found["second"] = rng.integers(0, 100, (2, size))
    found["fold"] = rng.integers(-1, 5, size)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_equal_error_rate_changes_by_at_most_the_changed_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = pairs(rng)
    target, metric, ones = records.copy(), SpeakerVerification(), np.ones(len(records))
    target["score"] += rng.normal(size=len(records)) * 0.2 + 0.1 * seed
    gaps = metric.gaps(target, records, np.arange(len(records)))
    assert gaps is not None
    assert (gaps.baseline != 0).all()
    limit = gaps.changed.mean() * metric.effect(target, records) * metric.value(records, ones)
    steps = 2 / min(np.count_nonzero(records["same"]), np.count_nonzero(~records["same"]))
    assert 0 < abs(metric.value(target, ones) - metric.value(records, ones)) <= limit + steps


def test_the_accuracy_of_pairs_has_the_thresholds_of_the_folds() -> None:
    records = pairs(np.random.default_rng(0))
    metric, kept = Verification(), records[records["fold"] >= 0]
    gaps = metric.gaps(records, records, np.arange(len(records)))
    assert gaps is not None
    right = (gaps.baseline >= 0) == kept["same"]
    folds = [right[kept["fold"] == fold].mean() for fold in range(5)]
    value = metric.value(records, np.ones(len(records)))
    assert np.mean(folds) == pytest.approx(value)
    smallest = np.bincount(kept["fold"]).min()
    assert metric.effect(records, records) * value == pytest.approx(len(kept) / 5 / smallest)
    own = kept["first"] == kept["second"]
    assert (gaps.units[own, 1] < 0).all()
    assert (gaps.units[~own, 1] == kept["second"][~own]).all()
    one_fold = records[records["fold"] == 0]
    assert metric.gaps(one_fold, one_fold, np.arange(len(one_fold))) is None


def test_the_effect_on_f1_is_that_of_a_missed_frame() -> None:
    rng = np.random.default_rng(0)
    records = np.zeros(4000, FRAME)
    records["true"] = rng.random(4000) < 0.3
    records["score"] = rng.normal(0.3 + 0.4 * records["true"], 0.2)
    metric, ones = FrameScores("f1"), np.ones(4000)
    value = metric.value(records, ones)
    worst = 0.0
    for true in (True, False):
        for found in (True, False):
            moved = records.copy()
            place = int(np.flatnonzero((moved["true"] == true) & ((moved["score"] >= 0.5) == found))[0])
            moved["score"][place] = 0.9 - 0.8 * found
            gaps = metric.gaps(moved, records, np.zeros(4000, int))
            assert gaps is not None
            assert np.flatnonzero(gaps.changed).tolist() == [place]
            worst = max(worst, abs(metric.value(moved, ones) - value))
    assert metric.effect(records, records) == pytest.approx(4000 * worst / value, rel=2e-3)


def scored(dtype: Any, rng: np.random.Generator, *shape: int) -> Array:
    found = np.zeros(shape, dtype)
    found["same" if "same" in found.dtype.names else "true"] = rng.random(shape) < 0.5
    found["score"] = rng.random(shape)
    if "known" in found.dtype.names:
        found["known"] = rng.random(shape) < 0.8
    return found


@pytest.mark.parametrize(
    ("metric", "records"),
    [
        (Clicks(), scored(CLICK, np.random.default_rng(1), 50)),
        (FrameScores(), scored(FRAME, np.random.default_rng(2), 50)),
        (Verification("auc"), scored(PAIR, np.random.default_rng(3), 50)),
        (GraphLabels(), scored(PROPERTY, np.random.default_rng(4), 50, 1)),
        (GraphLabels("accuracy"), scored(PROPERTY, np.random.default_rng(5), 50, 3)),
    ],
)
def test_shares_change_by_at_most_the_changed_share(metric: Metric, records: Array) -> None:
    ones = np.ones(len(records))
    gaps = metric.gaps(records, records, np.arange(len(records)))
    assert gaps is not None
    assert not gaps.ratios().any()
    assert metric.effect(records, records) == 1 / metric.value(records, ones)
    nan = records.copy()
    nan["score"][0] = np.nan
    known = "known" not in (records.dtype.names or ()) or records["known"][0].any()
    assert (metric.gaps(nan, records, np.arange(len(records))) is None) == known


def test_metrics_without_gaps() -> None:
    clicks, several = (
        scored(kind, np.random.default_rng(0), *shape) for kind, shape in ((CLICK, [9]), (PROPERTY, [9, 2]))
    )
    units = np.arange(9)
    assert Clicks("gauc").gaps(clicks, clicks, units) is None
    assert Clicks("log_loss").gaps(clicks, clicks, units) is None
    assert GraphLabels().gaps(several, several, units) is None
    assert GraphLabels("accuracy", scored=False).gaps(several, several, units) is None


def test_margins_of_the_class_of_a_graph() -> None:
    scores = [np.array([0.25, 0.75]), np.array([0.5, 0.5])]
    found = GraphClasses().update(scores, [1, 0])
    assert found.margins.tolist() == [0.5, 0]
    assert GraphClasses().bounds == (0.0, 1.0)
    labels = GraphClasses(scored=False).update(scores, [1, 0])
    assert np.isnan(labels.margins).all()
    area = GraphClasses("roc_auc")
    area.update(scores, [1, 0])
    assert area.bounds is None
    assert area.gaps(found.values, found.values, np.arange(2)) is not None
    assert area.effect(found.values, found.values) == 1
