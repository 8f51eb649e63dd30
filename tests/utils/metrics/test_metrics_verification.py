"""Verification: agreement with scikit-learn, folds with disjoint people, resampling of people, exact merging."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from support import ROOT

from engine import ConfigError
from utils.datasets.image.face_pairs import NO_FOLD, Truth
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.metrics.verification import RECORD, Verification


def measured(scores: Any, same: Any, folds: Any = None, people: Any = None, **how: Any) -> Verification:
    """Return the metric of pairs; without people every pair has its own two."""
    found = Verification(**how)
    folds = [i % 4 for i in range(len(scores))] if folds is None else folds
    people = [(f"a{i}", f"a{i}" if one else f"b{i}") for i, one in enumerate(same)] if people is None else people
    truths = [Truth(bool(one), two, int(fold)) for one, two, fold in zip(same, people, folds, strict=True)]
    found.update([float(score) for score in scores], truths)
    return found


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[float], list[bool], list[int]]:
    """Scores with many ties, both kinds of pairs, and weights of which some are 0."""
    count = draw(st.integers(4, 60))
    scores = [level / 4 for level in draw(st.lists(st.integers(-6, 6), min_size=count, max_size=count))]
    same = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    same[0], same[1] = True, False
    weights = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    weights[0] = weights[1] = 1
    return scores, same, weights


@settings(max_examples=15, deadline=None)
@given(pairs())
def test_auc_and_eer_equal_scikit_learn(drawn: tuple[list[float], list[bool], list[int]]) -> None:
    scores, same, weights = drawn
    kept = measured(scores, same, primary="auc")
    records, own = kept._all(), np.array(weights, float)
    assert kept.value(records, own) == pytest.approx(roc_auc_score(same, scores, sample_weight=own), abs=1e-12)
    false, true, _ = roc_curve(same, scores, drop_intermediate=False)
    places = np.arange(len(false))
    fine = np.linspace(0, places[-1], 20001)
    gap = np.interp(fine, places, false + true - 1)  # increases from -1 to 1
    eer = float(np.interp(fine[np.abs(gap).argmin()], places, false))
    assert kept.secondary()["eer"] == pytest.approx(eer, abs=1e-2)


@settings(max_examples=15, deadline=None)
@given(pairs())
def test_tar_is_the_maximum_within_the_rate(drawn: tuple[list[float], list[bool], list[int]]) -> None:
    scores, same, _ = drawn
    false, true, _ = roc_curve(same, scores, drop_intermediate=False)
    figures = measured(scores, same, fars=(0.25, 0.5)).secondary()
    impostors = len(same) - sum(same)
    for far in (0.25, 0.5):
        if impostors * far < 1:
            assert math.isnan(figures[f"tar_at_far_{far:g}"])
            assert f"tar_at_far_{far:g}_low" not in figures
        else:
            assert figures[f"tar_at_far_{far:g}"] == pytest.approx(true[false <= far + 1e-12].max())


def brute(scores: Any, same: Any, folds: Any) -> float:
    """Return the accuracy by folds, trying every threshold between two scores."""
    values = []
    for fold in sorted(set(folds)):
        train = [(s, y) for s, y, f in zip(scores, same, folds, strict=True) if f != fold]
        levels = sorted({s for s, _ in train}, reverse=True)
        middles = [(a + b) / 2 for a, b in itertools.pairwise(levels)]
        cuts = [math.inf, *middles, -math.inf]
        rights = [sum((s >= cut) == y for s, y in train) for cut in cuts]
        best = [i for i, right in enumerate(rights) if right == max(rights)]
        cut = cuts[best[(len(best) - 1) // 2]]
        test = [(s, y) for s, y, f in zip(scores, same, folds, strict=True) if f == fold]
        values.append(sum((s >= cut) == y for s, y in test) / len(test))
    return sum(values) / len(values)


@settings(max_examples=15, deadline=None)
@given(pairs())
def test_accuracy_by_folds(drawn: tuple[list[float], list[bool], list[int]]) -> None:
    scores, same, weights = drawn
    folds = [i % 3 for i in range(len(scores))]
    kept = measured(scores, same, folds)
    assert kept.compute() == pytest.approx(brute(scores, same, folds))
    repeated = [i for i, weight in enumerate(weights) for _ in range(weight)]
    if len({folds[i] for i in repeated}) > 1:
        drawn_twice = [[column[i] for i in repeated] for column in (scores, same, folds)]
        again = kept.value(kept._all(), np.array(weights, float))
        assert again == pytest.approx(measured(*drawn_twice).compute())


def test_a_fold_does_not_choose_its_own_threshold() -> None:
    """All scores of fold 0 are 10 higher, so its own best threshold is 10 above that of the others."""
    scores = [11, 10, 1.0, 0.0, 1.0, 0.0]
    found = measured(scores, [True, False] * 3, [0, 0, 1, 1, 2, 2])
    assert found.per_class()["fold 1"] == {"accuracy": 0.5, "threshold": 0.5, "pairs": 2}
    assert found.compute() == pytest.approx((0.5 + 0.5 + 0.5) / 3)


def test_pairs_without_a_fold_count_only_for_the_curve() -> None:
    found = measured([1, 0, 1, 0, 5], [True, False, True, False, False], [0, 0, 1, 1, NO_FOLD])
    assert found.compute() == 1.0
    assert found.secondary()["auc"] == pytest.approx(2 / 3)


def test_no_accuracy_with_fewer_than_two_folds() -> None:
    found = measured([1, 0], [True, False], [NO_FOLD, NO_FOLD])
    assert math.isnan(found.compute())
    assert found.per_class() == {}
    assert found.secondary()["auc"] == 1.0
    assert math.isnan(measured([1, 0], [True, False], [2, 2]).compute())


def test_nan_is_wrong_at_every_threshold() -> None:
    nan = float("nan")
    assert (
        measured([1, 0, 1, 0, nan, nan], [True, False, True, False, True, False], [0, 0, 1, 1, 0, 0]).compute() == 0.75
    )
    assert measured([nan, nan], [True, False], primary="auc").compute() == 0
    assert measured([nan] * 4, [True, False] * 2).compute() == 0


def test_no_curve_for_pairs_of_one_kind() -> None:
    figures = measured([1, 2], [True, True], primary="auc").secondary()
    assert math.isnan(figures["eer"])
    assert math.isnan(measured([1, 2], [False, False], primary="auc").compute())


def test_no_accuracy_for_pairs_of_one_kind() -> None:
    """Accepting all of them, or none, would be right."""
    alone = measured([1, 2, 3, 4], [True] * 4)
    assert math.isnan(alone.compute())
    assert alone.per_class() == {}
    assert "all 4 pairs that were run show one person" in alone.unknown()
    assert "show two people" in measured([1, 2], [False] * 2, primary="auc").unknown()
    assert measured([1, 0], [True, False], [2, 2]).unknown().endswith("use --metric auc")
    assert measured([1, 0], [True, False]).unknown() == ""


def test_too_few_pairs_of_two_people() -> None:
    scores = [*np.linspace(1, 2, 20), *np.linspace(0, 1.5, 100)]
    figures = measured(scores, [True] * 20 + [False] * 100).secondary()
    assert figures["tar_at_far_0.01"] > 0
    assert math.isnan(figures["tar_at_far_0.001"])
    assert "tar_at_far_0.001_high" not in figures


def test_the_interval_resamples_people() -> None:
    """One of five people is never recognised: resampling pairs would give a far too narrow interval."""
    people = [(f"p{i // 20}",) * 2 for i in range(100)] + [(f"p{i % 5}", f"p{(i + 1) % 5}") for i in range(100)]
    same = [True] * 100 + [False] * 100
    scores = [2.0 if i < 80 else 0.0 for i in range(100)] + [1.0] * 100
    figures = measured(scores, same, people=people, fars=(0.1,)).secondary()
    assert figures["tar_at_far_0.1"] == 0.8
    assert figures["tar_at_far_0.1_low"] < 0.55
    assert figures["tar_at_far_0.1_high"] == 1.0
    assert figures == measured(scores, same, people=people, fars=(0.1,)).secondary()


def test_exact_merge() -> None:
    chance = np.random.default_rng(0)
    same = chance.random(300) < 0.5
    scores = chance.normal(size=300) + same
    people = [(f"p{i % 17}", f"p{i % 17}" if one else f"p{(i + 3) % 17}") for i, one in enumerate(same)]
    folds = [i % 5 for i in range(300)]
    whole = measured(scores, same, folds, people)
    parts = [measured(scores[k::3], same[k::3], folds[k::3], people[k::3]) for k in (2, 0, 1)]
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    assert (parts[0].compute(), parts[0].secondary()) == (whole.compute(), whole.secondary())
    again = metric_from_json(metric_to_json(whole), ROOT)
    again.replay(whole._all())
    assert again.compute() == whole.compute()
    assert whole._all().dtype == RECORD


@pytest.mark.parametrize(
    ("how", "word"), [({"primary": "eer"}, "accuracy"), ({"fars": (0,)}, "--far 0"), ({"fars": (1.0,)}, "1.0")]
)
def test_invalid_arguments(how: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Verification(**how)
