"""Conversion of detectors' box, score and class formats to corners in pixels, probabilities and labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine import Array, InputError
from utils.coco_classes import IDS
from utils.postprocess.image.nms import Detections

BOX_FORMATS = ("xyxy", "xywh", "cxcywh", "yxyx")
"""Corners; the left upper corner with width and height; the centre with them; corners with y first."""

BOX_UNITS = ("pixels", "unit")
"""Pixels of the input, or relative to its width and height."""

SCORE_FORMS = ("probability", "logit", "softmax", "twice")
"""Conversion to probabilities: none; a sigmoid; a softmax over the classes with the background; or the inverse of a
sigmoid that was applied to probabilities."""

NMS = ("class", "all", "none")
"""Which better boxes suppress a box: those of its class, all, or none."""

COCO91 = "coco91"
"""Classes are COCO's category ids, 1 to 90 with gaps."""


class BoxForm(NamedTuple):
    """Format of a model's boxes and scores; the default is that of the rest of the zoo."""

    box_format: str = "xyxy"
    box_units: str = "pixels"
    class_offset: int | str = 0
    score_form: str = "probability"


USUAL = BoxForm()


def reformed(found: Detections, form: BoxForm, native: str, size: tuple[int, int] | None) -> Detections:
    """Convert candidates, read as corners in pixels from boxes of the format ``native``, from a model's format.

    Raises InputError if boxes are relative to an input of unknown size.
    """
    classes = labelled(found.classes, form)
    boxes = found.boxes
    if form.box_format != native or form.box_units != BOX_UNITS[0]:
        boxes = corners(_given(boxes, native), form, size)
    scores = probabilities(found.scores, form)
    kept = (classes >= 0) & ~np.isnan(scores)
    return Detections(boxes[kept], scores[kept], classes[kept])


def _given(boxes: Array, native: str) -> Array:
    """Convert corners back to the box format ``native``."""
    sides = boxes[..., 2:] - boxes[..., :2]
    if native == "cxcywh":
        return np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, sides], axis=-1)
    return boxes


def corners(boxes: Array, form: BoxForm, size: tuple[int, int] | None) -> Array:
    """Convert ... x 4 boxes to left, top, right, bottom in pixels of an input of this height and width.

    Raises InputError if boxes are relative to an input of unknown size.
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
            raise InputError("boxes are relative to an input of open size; set it with --input_size")
        wide = wide * np.array([size[1], size[0]] * 2, np.float64)
    return wide


def probabilities(scores: Array, form: BoxForm) -> Array:
    """Convert scores to probabilities; those of a softmax are unchanged."""
    wide = np.asarray(scores, np.float64)
    if form.score_form == "logit":
        return np.asarray(1 / (1 + np.exp(-np.clip(wide, -500, 500))))
    if form.score_form == "twice":
        inside = np.clip(wide, 1e-12, 1 - 1e-12)
        return np.asarray(np.clip(np.log(inside / (1 - inside)), 0.0, 1.0))
    return wide


def raw_score(probability: float, form: BoxForm) -> float:
    """Convert a probability to a score of this format."""
    if form.score_form == "logit":
        inside = min(max(probability, 1e-300), 1 - 1e-16)
        return math.log(inside) - math.log1p(-inside)
    return 1 / (1 + math.exp(-probability)) if form.score_form == "twice" else probability


def labelled(classes: Array, form: BoxForm) -> Array:
    """Convert a model's classes to labels, int64; negative for none (the background)."""
    if form.class_offset != COCO91:
        return np.asarray(classes, np.int64) - int(form.class_offset)
    table = np.full(max(int(classes.max(initial=0)), IDS[-1]) + 1, -1, np.int64)
    table[list(IDS)] = np.arange(len(IDS))
    return np.asarray(table[classes])
