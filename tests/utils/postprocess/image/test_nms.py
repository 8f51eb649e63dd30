"""Non-maximum suppression: its definition, the limit, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import InputError
from utils.postprocess.image import nms
from utils.postprocess.image.nms import Detections, non_maximum_suppression, overlaps


@st.composite
def candidates(draw: st.DrawFn) -> Detections:
    count = draw(st.integers(0, 25))
    corner = st.tuples(*[st.integers(0, 15)] * 2, *[st.integers(1, 10)] * 2)
    boxes = np.array(draw(st.lists(corner, min_size=count, max_size=count)), float).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    scores = np.array(draw(st.lists(st.integers(1, 9), min_size=count, max_size=count)), float) / 10
    classes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return Detections(boxes, scores, np.array(classes, np.int64))


def area(box: list[float]) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def share(a: list[float], b: list[float]) -> float:
    common = area([max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])])
    return common / (area(a) + area(b) - common)


@settings(deadline=None)
@given(candidates(), st.sampled_from([0.0, 0.31, 0.5, 0.72, 1.0]), st.sampled_from([1, 3, 1024]))
def test_suppression_equals_its_definition(found: Detections, threshold: float, block: int) -> None:
    """Pair by pair: keep a box unless a kept one of its class with a higher score overlaps it too much."""
    boxes = found.boxes.tolist()
    kept: list[int] = []
    for one in sorted(range(len(boxes)), key=lambda place: (-found.scores[place], place)):
        rivals = [other for other in kept if found.classes[other] == found.classes[one]]
        if all(share(boxes[one], boxes[other]) <= threshold for other in rivals):
            kept.append(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nms, "BLOCK", block)
        mine = non_maximum_suppression(found, threshold, len(boxes))
    np.testing.assert_array_equal(mine.boxes, found.boxes[kept])
    np.testing.assert_array_equal(mine.scores, found.scores[kept])
    np.testing.assert_array_equal(mine.classes, found.classes[kept])


@settings(deadline=None)
@given(candidates(), st.integers(0, 5))
def test_the_limit_keeps_the_best(found: Detections, limit: int) -> None:
    everything = non_maximum_suppression(found, 0.5, 1000)
    some = non_maximum_suppression(found, 0.5, limit)
    assert some.scores.tolist() == everything.scores[:limit].tolist()


def test_the_earlier_of_equal_scores_is_kept() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9]], float)
    kept = non_maximum_suppression(Detections(boxes, np.ones(2), np.zeros(2, int)), 0.5, 9)
    assert kept.boxes.tolist() == [[0, 0, 10, 10]]


@settings(deadline=None)
@given(candidates(), candidates())
def test_overlaps_equal_the_formula(one: Detections, other: Detections) -> None:
    a, b = one.boxes[:, None], other.boxes[None]
    common = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None).prod(axis=-1)
    sizes = [np.clip(boxes[..., 2:] - boxes[..., :2], 0, None).prod(axis=-1) for boxes in (a, b)]
    union = sizes[0] + sizes[1] - common
    wanted = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    np.testing.assert_array_equal(overlaps(one.boxes, other.boxes), wanted)


def test_overlaps() -> None:
    boxes = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [3, 3, 3, 9], [9, 9, 1, 1]], float)
    assert overlaps(boxes[:1], boxes)[0].tolist() == pytest.approx([1, 1 / 3, 0, 0])
    assert overlaps(boxes[2:], boxes[2:]).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Detections(np.zeros((2, 4)), np.zeros(1), np.zeros(1)), "pass N x 4, N and N"),
        (Detections(np.zeros((1, 4)), np.array([np.nan]), np.zeros(1)), "1 of 1 scores are NaN"),
    ],
)
def test_bad_input(found: Detections, message: str) -> None:
    with pytest.raises(InputError, match=message):
        non_maximum_suppression(found, 0.5, 1)
