"""Conversion of box, score and class formats and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import InputError
from utils.postprocess.image.box_forms import (
    BOX_FORMATS,
    BOX_UNITS,
    COCO91,
    USUAL,
    BoxForm,
    corners,
    labelled,
    probabilities,
    raw_score,
    reformed,
)
from utils.postprocess.image.nms import Detections

SIZE = (40, 80)


def written(boxes: np.ndarray, box_format: str, box_units: str) -> np.ndarray:
    """Convert corners in pixels to a model's format."""
    boxes = boxes / np.array([SIZE[1], SIZE[0]] * 2) if box_units == "unit" else boxes
    sides = boxes[:, 2:] - boxes[:, :2]
    made = {
        "xyxy": boxes,
        "xywh": np.concatenate([boxes[:, :2], sides], 1),
        "cxcywh": np.concatenate([boxes[:, :2] + sides / 2, sides], 1),
        "yxyx": boxes[:, [1, 0, 3, 2]],
    }
    return made[box_format]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(BOX_FORMATS), st.sampled_from(BOX_UNITS), st.sampled_from(("xyxy", "cxcywh")), st.integers(0, 99)
)
def test_roundtrip_of_boxes(box_format: str, box_units: str, native: str, seed: int) -> None:
    right = np.sort(np.random.default_rng(seed).uniform(0, 40, (5, 2, 2)), axis=1).reshape(5, 4)
    given_numbers = written(right, box_format, box_units)
    read = corners(given_numbers, BoxForm(native), None)  # read as another format
    found = Detections(read, np.full(5, 0.5), np.arange(5))
    again = reformed(found, BoxForm(box_format, box_units), native, SIZE)
    np.testing.assert_allclose(again.boxes, right, atol=1e-9)
    assert again.classes.tolist() == found.classes.tolist()


def test_relative_boxes_need_the_inputs_size() -> None:
    with pytest.raises(InputError, match="--input_size"):
        corners(np.zeros((1, 4)), BoxForm(box_units="unit"), None)


@settings(deadline=None)
@given(st.floats(0.0, 1.0), st.sampled_from(("probability", "logit", "twice")))
def test_roundtrip_of_scores_in_order(share: float, form: str) -> None:
    inside = min(max(share, 1e-9), 1 - 1e-9)
    raw = {"probability": inside, "logit": np.log(inside / (1 - inside)), "twice": 1 / (1 + np.exp(-inside))}[form]
    found = BoxForm(score_form=form)
    assert probabilities(np.array([raw]), found)[0] == pytest.approx(inside, abs=1e-6)
    assert raw_score(inside, found) == pytest.approx(raw, abs=1e-6)


def test_classes() -> None:
    assert labelled(np.array([0, 1, 5]), BoxForm(class_offset=1)).tolist() == [-1, 0, 4]
    assert labelled(np.array([0, 1]), BoxForm(class_offset=-1)).tolist() == [1, 2]
    # COCO's ids: 1 person, 13 stop sign (11 of 80, for there is no 12), 90 toothbrush; 12 and 0 are none
    assert labelled(np.array([1, 13, 90, 12, 0, 95]), BoxForm(class_offset=COCO91)).tolist() == [0, 11, 79, -1, -1, -1]
    assert labelled(np.empty(0, np.int64), USUAL).tolist() == []
    found = Detections(np.zeros((2, 4)), np.array([0.9, 0.8]), np.array([0, 1]))
    assert reformed(found, BoxForm(class_offset=1), "xyxy", SIZE).scores.tolist() == [0.8]
