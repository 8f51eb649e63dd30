"""Speaker verification: agreement with scikit-learn's DET curve and with error counts at every threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import det_curve
from support import ROOT

from engine import ConfigError
from utils.datasets.image.face_pairs import NO_FOLD, Truth
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.metrics.speakers import SpeakerVerification


def measured(scores: Any, same: Any, **how: Any) -> SpeakerVerification:
    """Return the metric of trials of six speakers."""
    found = SpeakerVerification(**how)
    people = [(f"s{i % 6}", f"s{i % 6}" if one else f"s{(i + 1) % 6}") for i, one in enumerate(same)]
    found.update(
        [float(score) for score in scores],
        [Truth(bool(one), two, NO_FOLD) for one, two in zip(same, people, strict=True)],
    )
    return found


def plain_cost(scores: Any, same: Any, share: float) -> float:
    """Return the normalised minimum cost by counting errors at every threshold."""
    own = [s for s, one in zip(scores, same, strict=True) if one]
    other = [s for s, one in zip(scores, same, strict=True) if not one]
    costs = []
    for threshold in [*scores, math.inf]:
        missed = sum(s < threshold for s in own) / len(own)
        false = sum(s >= threshold for s in other) / len(other)
        costs.append((share * missed + (1 - share) * false) / min(share, 1 - share))
    return min(costs)


trials = st.integers(6, 40).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(-8, 8).map(lambda level: level / 8), min_size=count, max_size=count),
        st.lists(st.booleans(), min_size=count - 2, max_size=count - 2).map(lambda kinds: [True, False, *kinds]),
    )
)


@settings(max_examples=25, deadline=None)
@given(trials, st.sampled_from([0.01, 0.05, 0.5, 0.9]))
def test_the_minimum_cost_equals_counts_and_the_det_curve(drawn: Any, share: float) -> None:
    scores, same = drawn
    found = measured(scores, same, p_targets=[share]).secondary()[f"min_dcf_{share:g}"]
    assert found == pytest.approx(plain_cost(scores, same, share), abs=1e-12)
    false, missed, _ = det_curve(same, scores)
    # scikit-learn omits the points where all pairs are accepted, or none
    ends = [(1.0, 0.0), (0.0, 1.0)]
    points = [*zip(false, missed, strict=True), *ends]
    known = min((share * miss + (1 - share) * wrong) / min(share, 1 - share) for wrong, miss in points)
    assert found == pytest.approx(known, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(trials)
def test_the_equal_error_rate_is_between_points_of_the_det_curve(drawn: Any) -> None:
    scores, same = drawn
    metric = measured(scores, same)
    false, missed, _ = det_curve(same, scores)
    points = sorted({*zip(false, missed, strict=True), (1.0, 0.0), (0.0, 1.0)})
    highest = max(min(pair) for pair in points)
    lowest = min(max(pair) for pair in points)
    assert highest - 1e-12 <= metric.compute() <= lowest + 1e-12
    threshold = metric.secondary()["threshold"]
    over = np.mean([s >= threshold for s, one in zip(scores, same, strict=True) if not one])
    under = np.mean([s < threshold for s, one in zip(scores, same, strict=True) if one])
    assert over >= under - 1e-12
    assert max(min(over, under), 0) <= metric.compute() + 1e-12


def test_nan_scores_are_wrong_at_every_threshold() -> None:
    assert measured([math.nan, 1.0, 0.0, -1.0], [True, True, False, False]).compute() == pytest.approx(0.5)
    assert measured([1.0, 1.0, 0.0, -1.0], [True, True, False, False]).compute() == 0


def test_no_value_for_trials_of_one_kind() -> None:
    metric = measured([0.1, 0.2, 0.3], [True, True, True])
    assert math.isnan(metric.compute())
    assert "all 3 pairs" in metric.unknown()
    assert all(math.isnan(metric.secondary()[name]) for name in ("min_dcf_0.01", "auc", "threshold"))


def test_definition_as_json() -> None:
    metric = measured([0.1, 0.9], [False, True], fars=[0.5], p_targets=[0.2])
    again = metric_from_json(metric_to_json(metric), ROOT)
    again.merge(metric)
    assert again.secondary() == metric.secondary()
    assert (again.name, again.higher_is_better) == ("eer", False)


@pytest.mark.parametrize("how", [{"p_targets": [0.0]}, {"p_targets": [1.0]}, {"fars": [1.0]}])
def test_shares_must_be_between_0_and_1(how: Any) -> None:
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        SpeakerVerification(**how)
