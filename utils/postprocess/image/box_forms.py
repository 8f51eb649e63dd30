"""The forms that detectors give boxes, scores and classes in, brought to one: corners in pixels, shares, labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine import Array, InputError
from utils.coco_classes import IDS
from utils.postprocess.image.nms import Detections

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


class BoxForm(NamedTuple):
    """The form of a model's boxes and scores; the defaults are what the rest of the zoo works with."""

    box_format: str = "xyxy"
    box_units: str = "pixels"
    class_offset: int | str = 0
    score_form: str = "probability"


USUAL = BoxForm()


def reformed(found: Detections, form: BoxForm, native: str, size: tuple[int, int] | None) -> Detections:
    """Return candidates as they are where their numbers have another form than the one they were read in.

    Args:
        found: candidates, read as corners in pixels. form: what their numbers really are. native: the box format they
            were read from. size: height and width of the input in pixels; ``None``: not known.

    Raises:
        InputError: shares of an input whose size is not known.
    """
    classes = labelled(found.classes, form)
    boxes = found.boxes
    if form.box_format != native or form.box_units != BOX_UNITS[0]:
        boxes = corners(_given(boxes, native), form, size)
    scores = probabilities(found.scores, form)
    kept = (classes >= 0) & ~np.isnan(scores)
    return Detections(boxes[kept], scores[kept], classes[kept])


def _given(boxes: Array, native: str) -> Array:
    """Return corners as the numbers that they were read from."""
    sides = boxes[..., 2:] - boxes[..., :2]
    if native == "cxcywh":
        return np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, sides], axis=-1)
    return boxes


def corners(boxes: Array, form: BoxForm, size: tuple[int, int] | None) -> Array:
    """Return ... x 4 boxes of a form as left, top, right, bottom in pixels of an input of this height and width.

    Raises:
        InputError: shares of an input whose size is not known.
    """
    wide = np.asarray(boxes, np.float64)
    if form.box_format == "yxyx":
        wide = wide[..., [1, 0, 3, 2]]
    elif form.box_format != "xyxy":
        first, sides = wide[..., :2], wide[..., 2:]
        first = first - sides / 2 if form.box_format == "cxcywh" else first
        wide = np.concatenate([first, first + sides], axis=-1)
    if form.box_units == "unit":
        if size is None:
            raise InputError("boxes in shares of an input whose size is open; say it with --input_size")
        wide = wide * np.array([size[1], size[0]] * 2, np.float64)
    return wide


def probabilities(scores: Array, form: BoxForm) -> Array:
    """Return scores as probabilities; those of a softmax are so already."""
    wide = np.asarray(scores, np.float64)
    if form.score_form == "logit":
        return np.asarray(1 / (1 + np.exp(-np.clip(wide, -500, 500))))
    if form.score_form == "twice":
        inside = np.clip(wide, 1e-12, 1 - 1e-12)
        return np.asarray(np.clip(np.log(inside / (1 - inside)), 0.0, 1.0))
    return wide


def raw_score(probability: float, form: BoxForm) -> float:
    """Return the number that a score has in its form where it is this probability."""
    if form.score_form == "logit":
        inside = min(max(probability, 1e-300), 1 - 1e-16)
        return math.log(inside) - math.log1p(-inside)
    return 1 / (1 + math.exp(-probability)) if form.score_form == "twice" else probability


def labelled(classes: Array, form: BoxForm) -> Array:
    """Return the labels that a model's classes mean, int64; negative where one means none (the background)."""
    if form.class_offset != COCO91:
        return np.asarray(classes, np.int64) - int(form.class_offset)
    table = np.full(max(int(classes.max(initial=0)), IDS[-1]) + 1, -1, np.int64)
    table[list(IDS)] = np.arange(len(IDS))
    return np.asarray(table[classes])
