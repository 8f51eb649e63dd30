"""Set outputs of DETR, RT-DETR and OWL-ViT in transformers: every query is one object or none, without suppression.

``pred_boxes`` are centre, width and height, relative to the image in the input (without padding); for an
open-vocabulary detector with a padded square, relative to the whole input.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine import Array
from utils.postprocess.image.layouts.base import Layout, Outputs, corners, highest, refuse, sigmoid, softmax, sufficient
from utils.postprocess.image.nms import Detections

NAMES = ("logits", "pred_boxes")


def _parts(outputs: Outputs) -> tuple[Array, Array]:
    """Return logits N x Q x C and boxes N x Q x 4, by their names, else as the first two outputs."""
    by_name = dict(zip(outputs.names, outputs.arrays, strict=False))
    found = [by_name[name] for name in NAMES] if set(NAMES) <= set(by_name) else list(outputs.arrays[:2])
    if len(found) == 2 and found[0].ndim == 3 and found[1].shape == (outputs.samples, *found[0].shape[1:2], 4):
        return found[0], found[1]
    raise refuse(outputs, "logits N x Q x C and pred_boxes N x Q x 4")


def _fits(outputs: Outputs, background: int) -> bool:
    """Return whether the outputs have DETR's names, and as many classes as labels (if stored) and background."""
    if not set(NAMES) <= set(outputs.names):
        return False
    classes = outputs.arrays[outputs.names.index("logits")].shape[-1]
    return outputs.labels in (None, classes - background)


def read_detr(outputs: Outputs) -> list[Detections]:
    """Return each query's best class by softmax; the last means no object (Carion et al. 2020, arXiv:2005.12872)."""
    logits, boxes = _parts(outputs)
    found = []
    for one, box, place in zip(logits, boxes, outputs.places, strict=True):
        shares = softmax(one)[:, :-1]
        classes = shares.argmax(axis=1)
        best = shares[np.arange(len(shares)), classes].astype(np.float64)
        found.append(sufficient(Detections(_placed(box, place), best, classes), outputs))
    return found


def read_rtdetr(outputs: Outputs) -> list[Detections]:
    """Return the best pairs of query and class by sigmoid, as many as there are queries (or the note's ``top_k``).

    Zhu et al., "Deformable DETR" (2020); Zhao et al., "DETRs Beat YOLOs on Real-time Object Detection" (2023).
    """
    logits, boxes = _parts(outputs)
    found = []
    for one, box, place in zip(logits, boxes, outputs.places, strict=True):
        queries, classes = np.nonzero(~np.isnan(one))
        every = Detections(_placed(box, place)[queries], sigmoid(one[queries, classes]).astype(np.float64), classes)
        found.append(sufficient(highest(every, int(outputs.note.get("top_k", len(one)))), outputs))
    return found


def read_owl(outputs: Outputs) -> list[Detections]:
    """Return each box with its best text query, which is its class, by sigmoid.

    Minderer et al., "Simple Open-Vocabulary Object Detection with Vision Transformers" (2022).
    """
    logits, boxes = _parts(outputs)
    height, width = outputs.size or tuple(outputs.noted("size"))
    whole = np.array([0, 0, width, height], np.float64)
    found = []
    for one, box in zip(logits, boxes, strict=True):
        classes = one.argmax(axis=1)  # of the logits, as several sigmoids may be rounded to 1
        best = sigmoid(one[np.arange(len(one)), classes]).astype(np.float64)
        found.append(sufficient(Detections(_placed(box, whole), best, classes), outputs))
    return found


def _placed(boxes: Array, place: Array) -> Array:
    """Convert relative centres and sizes to corners in pixels of the input, float64."""
    return np.asarray(corners(np.asarray(boxes, np.float64)) * np.tile(place[2:], 2) + np.tile(place[:2], 2))


DETR = "logits N x Q x (C + 1) and pred_boxes N x Q x 4: softmax, the last class is no object"
RTDETR = "logits N x Q x C and pred_boxes N x Q x 4: sigmoid"
OWL = "logits N x P x queries and pred_boxes N x P x 4: sigmoid per text query"

LAYOUTS = (
    Layout("detr", DETR, read_detr, partial(_fits, background=1), final=True, takes_logits=True),
    Layout("rtdetr", RTDETR, read_rtdetr, partial(_fits, background=0), final=True, takes_logits=True),
    Layout("owl", OWL, read_owl, final=True, takes_logits=True),
)
