"""The forms that detectors give boxes, scores and classes in, brought to one: corners in pixels, shares, labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array

BOX_FORMATS = ("xyxy", "xywh", "cxcywh", "yxyx")
"""Corners; the left upper corner with width and height; the centre with them; corners with the vertical first."""

BOX_UNITS = ("pixels", "unit")
"""Pixels of the input, or shares of its width and height."""

SCORE_FORMS = ("probability", "logit", "softmax", "twice")
"""What turns them into probabilities: nothing; a sigmoid; a softmax over the classes, the background among them; or
undoing a sigmoid that was applied to what were probabilities already."""

NMS = ("class", "all", "none")
"""Which better box makes one go: one of its class, any, or none."""

COCO91 = "coco91"
"""Classes are COCO's category ids, 1 to 90 with gaps."""

_GAPS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""Ids up to 90 that COCO's annotations do not use (cocodataset.org)."""


class BoxForm(NamedTuple):
    """The form of a model's boxes and scores; the defaults are what the rest of the zoo works with."""

    box_format: str = "xyxy"
    box_units: str = "pixels"
    class_offset: int | str = 0
    score_form: str = "probability"


def corners(boxes: Array, form: BoxForm, size: tuple[int, int]) -> Array:
    """Return ... x 4 boxes as left, top, right, bottom in pixels of an input of this height and width.

    Boxes that are so already come back as they are, others as float64.
    """
    if form.box_format == "xyxy" and form.box_units == "pixels":
        return boxes
    wide = np.asarray(boxes, np.float64)
    if form.box_format == "yxyx":
        wide = wide[..., [1, 0, 3, 2]]
    elif form.box_format != "xyxy":
        first, sides = wide[..., :2], wide[..., 2:]
        first = first - sides / 2 if form.box_format == "cxcywh" else first
        wide = np.concatenate([first, first + sides], axis=-1)
    if form.box_units == "unit":
        wide = wide * np.array([size[1], size[0]] * 2, np.float64)
    return wide


def probabilities(scores: Array, form: BoxForm) -> Array:
    """Return ... x C scores as probabilities; NaN stays, and what no form could give is bounded."""
    if form.score_form == "probability":
        return scores
    wide = np.asarray(scores, np.float64)
    if form.score_form == "logit":
        return np.asarray(1 / (1 + np.exp(-np.clip(wide, -500, 500))))
    if form.score_form == "twice":
        inside = np.clip(wide, 1e-12, 1 - 1e-12)
        return np.asarray(np.clip(np.log(inside / (1 - inside)), 0.0, 1.0))
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def labelled(classes: Array, form: BoxForm) -> Array:
    """Return the labels that a model's classes mean, int64; negative where one means none (the background)."""
    if form.class_offset != COCO91:
        return np.asarray(classes, np.int64) - int(form.class_offset)
    used = [number for number in range(1, 91) if number not in _GAPS]
    table = np.full(max(int(classes.max(initial=0)), 90) + 1, -1, np.int64)
    table[used] = np.arange(len(used))
    return np.asarray(table[classes])
