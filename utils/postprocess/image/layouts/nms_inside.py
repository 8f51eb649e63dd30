"""Exports with the suppression in the graph: their outputs are the result."""

from __future__ import annotations

import numpy as np

from engine import Array
from utils.postprocess.image.layouts.base import Layout, Outputs, refuse, sufficient, taken
from utils.postprocess.image.nms import Detections

EFFICIENT = "num_dets N x 1, boxes N x M x 4 (corners in pixels), scores N x M and classes N x M"
SELECTED = "selected K x 3 (image, class, box), boxes N x Q x 4 (corners in pixels) and scores N x C x Q"
ROWS = "K x 7: image, left, top, right, bottom in pixels, class, score"


def _efficient(outputs: Outputs) -> tuple[Array, Array, Array, Array] | None:
    """Return count, boxes, scores and classes; ``None`` if the shapes do not fit."""
    if len(outputs.arrays) != 4:
        return None
    count, boxes, scores, classes = outputs.arrays
    samples = outputs.samples
    if boxes.ndim != 3 or boxes.shape[::2] != (samples, 4) or count.size != samples:
        return None
    return (count, boxes, scores, classes) if scores.shape == classes.shape == boxes.shape[:2] else None


def read_efficient(outputs: Outputs) -> list[Detections]:
    """Return the first ``num_dets`` of each image: the outputs of TensorRT's EfficientNMS."""
    parts = _efficient(outputs)
    if parts is None:
        raise refuse(outputs, EFFICIENT)
    counts, boxes, scores, classes = parts
    found = []
    for count, box, score, label in zip(counts.reshape(-1).tolist(), boxes, scores, classes, strict=True):
        some = Detections(box.astype(np.float64), score.astype(np.float64), label.astype(np.int64))
        found.append(sufficient(taken(some, np.arange(min(max(int(count), 0), len(score)))), outputs))
    return found


def _selected(outputs: Outputs) -> tuple[Array, Array, Array] | None:
    """Return the selection, boxes and scores, by their shapes; ``None`` if the shapes do not fit."""
    if len(outputs.arrays) != 3:
        return None
    picks = [one for one in outputs.arrays if one.ndim == 2 and one.shape[1] == 3 and one.dtype.kind in "iu"]
    rest = [one for one in outputs.arrays if one.ndim == 3 and len(one) == outputs.samples]
    if len(picks) != 1 or len(rest) != 2:
        return None
    boxes, scores = rest if rest[0].shape[2] == 4 else rest[::-1]
    return (picks[0], boxes, scores) if boxes.shape[1:] == (scores.shape[2], 4) else None


def read_selected(outputs: Outputs) -> list[Detections]:
    """Return the selection of ONNX's NonMaxSuppression."""
    parts = _selected(outputs)
    if parts is None:
        raise refuse(outputs, SELECTED)
    picks, boxes, scores = parts
    found = []
    for i in range(outputs.samples):
        classes, places = picks[picks[:, 0] == i, 1:].T
        some = Detections(
            boxes[i, places].astype(np.float64), scores[i, classes, places].astype(np.float64), classes.astype(np.int64)
        )
        found.append(sufficient(some, outputs))
    return found


def fits_rows(outputs: Outputs) -> bool:
    """Return whether there is one output of seven numbers per object."""
    return len(outputs.arrays) == 1 and outputs.arrays[0].ndim == 2 and outputs.arrays[0].shape[1] == 7


def read_rows(outputs: Outputs) -> list[Detections]:
    """Return the rows of each image: YOLOv7's end-to-end export."""
    if not fits_rows(outputs):
        raise refuse(outputs, ROWS)
    rows = outputs.arrays[0].astype(np.float64)
    found = []
    for i in range(outputs.samples):
        own = rows[rows[:, 0] == i]
        some = Detections(own[:, 1:5], own[:, 6], np.nan_to_num(own[:, 5]).astype(np.int64))
        found.append(sufficient(some, outputs))
    return found


LAYOUTS = (
    Layout("efficient_nms", EFFICIENT, read_efficient, _efficient, final=True),
    Layout("onnx_nms", SELECTED, read_selected, _selected, final=True),
    Layout("yolov7_rows", ROWS, read_rows, fits_rows, final=True),
)
