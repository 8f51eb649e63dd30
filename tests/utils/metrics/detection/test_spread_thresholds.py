"""The smoothed value of detection metrics: thresholds of overlap spread around each, and the mean around recalls."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Array
from utils.datasets.image.boxes import Objects
from utils.metrics.detection import matching
from utils.metrics.detection.average_precision import SPREAD, Curves, Ranked, around_recalls, at_recalls, whole_area
from utils.metrics.detection.faces import FaceAveragePrecision
from utils.metrics.detection.matching import IOU_THRESHOLDS, overlaps_in_order
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections

BOX = [0.0, 0.0, 10.0, 10.0]


def scene(rng: np.random.Generator, objects: int = 4) -> tuple[Detections, Objects]:
    """Objects apart from each other, found up to three times with different overlaps, and wrong detections."""
    real = np.array([BOX] * objects) + 20.0 * np.arange(objects)[:, None]
    found = np.concatenate([real[rng.integers(0, objects, 8)] + rng.uniform(0, 2, (8, 4)), rng.uniform(0, 9, (2, 4))])
    found[-2:, 2:] += found[-2:, :2]
    kinds = rng.integers(0, 2, objects)
    return (
        Detections(found, rng.random(10), rng.integers(0, 2, 10)),
        Objects(real, kinds, np.zeros(objects, bool), ("a", "b")),
    )


def made(seed: int, count: int = 20) -> tuple[list[Detections], list[Objects]]:
    rng = np.random.default_rng(seed)
    found, real = zip(*(scene(rng) for _ in range(count)), strict=True)
    return list(found), list(real)


def test_overlaps_in_the_order_of_scores() -> None:
    share = np.array([[0.6, 0.1], [0.7, 0.0], [0.65, 0.9], [0.8, 0.2], [0.0, 0.0]])
    over, taken = overlaps_in_order(share)
    assert over.tolist() == [0.6, 0.7, 0.9, 0.8, 0]
    assert taken == pytest.approx([0, 0.6, 0, 0.7, 0])
    empty = overlaps_in_order(np.zeros((2, 0)))
    assert [one.tolist() for one in empty] == [[0, 0], [0, 0]]


def test_detections_are_right_between_their_two_overlaps() -> None:
    """At the ten thresholds, for objects that do not touch, this is COCO's matching."""
    for seed in range(20):
        records = MeanAveragePrecision(("a", "b")).records(*made(seed)).values
        levels = np.array(IOU_THRESHOLDS)
        right = (records["overlap"][:, None] >= levels) & (records["taken"][:, None] < levels)
        assert np.array_equal(right @ (1 << np.arange(10)), records["right"][:, 0])


def test_a_spread_threshold_is_the_mean_over_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share by which a detection counts, against matching again at 101 thresholds around each."""
    found, real = made(3)
    metric = MeanAveragePrecision(("a", "b"))
    records = metric.records(found, real).values
    ranked = Ranked(records)
    shares = _by_detection(Curves(ranked, 0, SPREAD), len(ranked.order))
    steps = (np.arange(101) - 50) / 101 * 2 * SPREAD
    expected = np.zeros_like(shares)
    for step in steps:
        monkeypatch.setattr(matching, "_LOWEST", np.array(IOU_THRESHOLDS)[:, None] + step)
        other = MeanAveragePrecision(("a", "b")).records(found, real).values
        expected += (other["right"][ranked.order, 0][:, None] >> np.arange(10)) & 1
    assert shares == pytest.approx(expected / len(steps), abs=0.011)
    assert ((shares > 0.1) & (shares < 0.9)).sum() > 10


def _by_detection(curves: Curves, count: int) -> Array:
    """Return by how much each detection counts, detections x thresholds."""
    shares = np.zeros((count, len(IOU_THRESHOLDS)))
    shares[curves._right, curves._segment // len(curves.classes)] = curves._share
    return shares


def test_in_a_crowd_the_matching_decides() -> None:
    """The second detection takes its second best object, because the best one is taken."""
    near = [1.0, 0.0, 11.0, 10.0]
    found = Detections(np.array([BOX, [0.2, 0.0, 10.2, 10.0]]), np.array([0.9, 0.8]), np.zeros(2, np.int64))
    real = Objects(np.array([BOX, near]), np.zeros(2, np.int64), np.zeros(2, bool), ("a",))
    records = MeanAveragePrecision(("a",)).records([found], [real]).values
    assert records["right"][1, 0] == 0b11111111  # an overlap of 0.852
    shares = _by_detection(Curves(Ranked(records), 0, SPREAD), 2)
    assert shares[1].tolist() == [1] * 8 + [0] * 2


def test_without_a_spread_the_value_is_the_same() -> None:
    metric = MeanAveragePrecision(("a", "b"))
    records = metric.records(*made(5)).values
    plain, none = (Curves(Ranked(records), 0, *spread) for spread in ((), (0.0,)))
    ones = np.ones(len(records))
    assert np.array_equal(plain.precisions(ones, whole_area), none.precisions(ones, whole_area))


@pytest.mark.parametrize(
    "metric", [MeanAveragePrecision(("a", "b")), MeanAveragePrecision(("a", "b"), rules="voc2012")]
)
def test_the_smoothed_value_is_near_the_value_and_moves_with_the_boxes(metric: MeanAveragePrecision) -> None:
    found, real = made(7, 200)
    records = metric.records(found, real).values
    ones = np.ones(len(records))
    before = metric.smoothed(records)(ones)
    assert before == pytest.approx(metric.value(records, ones), rel=0.05)
    worse = [Detections(one.boxes + 1e-4, one.scores, one.classes) for one in found]
    after = metric.smoothed(metric.records(worse, real).values)(ones)
    assert 0 < before - after < 1e-3


def test_faces_are_smoothed_too() -> None:
    metric = FaceAveragePrecision()
    found, real = made(2)
    faces = [Objects(one.boxes, np.zeros_like(one.classes), one.crowd, ("face",)) for one in real]
    found = [Detections(one.boxes, one.scores, np.zeros_like(one.classes)) for one in found]
    records = metric.records(found, faces).values
    ones = np.ones(len(records))
    assert metric.smoothed(records)(ones) == pytest.approx(metric.value(records, ones), rel=0.05)


@pytest.mark.parametrize("count", [11, 101])
def test_the_mean_around_recalls(count: int) -> None:
    """For a precision that falls linearly, in small steps, both means are 3/4; whole recall ends at precision 1/2."""
    recall = np.arange(1, 10**5 + 1) / 10**5
    precision = 1 - recall / 2
    assert around_recalls(count)(recall, precision) == pytest.approx(0.75, abs=1e-4)
    assert at_recalls(count)(recall, precision) == pytest.approx(0.75, abs=1e-4)
    half = slice(0, 10**5 // 2)
    assert around_recalls(count)(recall[half], precision[half]) == pytest.approx(
        ((count - 1) * whole_area(recall[half], precision[half]) + 0.5) / count, abs=1e-5
    )
