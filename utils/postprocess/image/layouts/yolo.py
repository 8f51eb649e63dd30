"""The YOLO family: one tensor with every cell's box and scores.

The generations differ in the object score (up to v7), in the axis of the cells, and in the steps left to the host.
``cells`` are all cells of the feature maps at the strides 8, 16 and 32 (and 64); a model with anchors has three boxes
per cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from engine import Array, ModelError
from utils.postprocess.image.layouts.base import (
    Layout,
    Outputs,
    corners,
    joined,
    logit,
    pairs,
    refuse,
    seen,
    sigmoid,
    without_nan,
)
from utils.postprocess.image.nms import Detections

STRIDES = ((8, 16, 32), (8, 16, 32, 64))
ANCHORS = 3

V5 = "N x A x (5 + C): centre, width, height in pixels, object score, class scores"
V8 = "N x (4 + C) x A: centre, width, height in pixels, class scores"
X = "N x A x (5 + C), as V5's, with centres and sizes in cells: before grids and strides"
END = "N x Q x 6: left, top, right, bottom in pixels, score, class; at most Q objects, nothing to suppress"


def grids(size: tuple[int, int], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return rows and columns of the feature maps of an input."""
    return [(size[0] // stride, size[1] // stride) for stride in strides]


def cells(outputs: Outputs) -> list[int]:
    """Return the possible numbers of cells for an input of this size; empty if the size is not known."""
    if outputs.size is None:
        return []
    strides = outputs.note.get("strides")
    known = [tuple(strides)] if strides else STRIDES
    return [sum(rows * columns for rows, columns in grids(outputs.size, one)) for one in known]


def _only(outputs: Outputs) -> Array | None:
    """Return the only output if it is N x P x Q, else ``None``."""
    if len(outputs.arrays) != 1 or outputs.arrays[0].ndim != 3 or len(outputs.arrays[0]) != outputs.samples:
        return None
    return outputs.arrays[0]


def _rows(outputs: Outputs, boxes: int) -> bool:
    """Return whether there is a row of 5 + C numbers for each of this many boxes per cell."""
    found = _only(outputs)
    if found is None or (outputs.labels is not None and found.shape[2] != 5 + outputs.labels):
        return False
    return found.shape[2] > 5 and found.shape[1] in [boxes * count for count in cells(outputs)]


FITS_V5, FITS_FREE = partial(_rows, boxes=ANCHORS), partial(_rows, boxes=1)
"""Three boxes per cell (YOLOv5), and one box per cell in rows (YOLOv6, YOLOX)."""


def fits_v8(outputs: Outputs) -> bool:
    """Return whether there is one box per cell, in columns."""
    found = _only(outputs)
    if found is None or (outputs.labels is not None and found.shape[1] != 4 + outputs.labels):
        return False
    return found.shape[1] > 4 and found.shape[2] in cells(outputs)


def fits_end(outputs: Outputs) -> bool:
    """Return whether there are rows of six numbers, but not one for each cell."""
    found = _only(outputs)
    if found is None or found.shape[2] != 6:
        return False
    return not any(found.shape[1] == kind * count for count in cells(outputs) for kind in (1, ANCHORS))


def read_v5(outputs: Outputs) -> list[Detections]:
    """Return every pair of box and class; a score is the object's times the class's."""
    return [_scored(one, outputs) for one in _table(outputs, 6, V5)]


def read_v8(outputs: Outputs) -> list[Detections]:
    """Return every pair of box and class."""
    found = _table(outputs, 1, V8)
    if found.shape[1] < 5:
        raise refuse(outputs, V8)
    rows = (_likely(one.T, one[4:].max(axis=0), outputs) for one in found)
    return [pairs(corners(one[:, :4].astype(np.float64)), one[:, 4:], outputs) for one in rows]


def read_x(outputs: Outputs) -> list[Detections]:
    """Return every pair of box and class of YOLOX's outputs; the positions of the cells are added here.

    Ge et al., "YOLOX: Exceeding YOLO Series in 2021": x = (x + column) * stride, w = exp(w) * stride.
    """
    found = _table(outputs, 6, X)
    if outputs.size is None or found.shape[1] not in cells(outputs):
        raise refuse(outputs, f"{X}, with A one of {cells(outputs)}")
    strides = tuple(outputs.note.get("strides") or STRIDES[cells(outputs).index(found.shape[1])])
    start, scale = _cell_places(outputs.size, strides)
    return [_scored(_in_pixels(one, start, scale), outputs) for one in found]


def _in_pixels(rows: Array, start: Array, scale: Array) -> Array:
    made = rows.astype(np.float32)
    made[:, :2] = (made[:, :2] + start) * scale
    with np.errstate(over="ignore"):
        made[:, 2:4] = np.exp(made[:, 2:4]) * scale
    return made


def _cell_places(size: tuple[int, int], strides: tuple[int, ...]) -> tuple[Array, Array]:
    """Return A x 2 columns and rows, and A x 1 strides, of the cells of all maps, row by row."""
    starts, scales = [], []
    for (rows, columns), stride in zip(grids(size, strides), strides, strict=True):
        starts.append(np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2))
        scales.append(np.full((rows * columns, 1), stride, np.float32))
    return np.concatenate(starts).astype(np.float32), np.concatenate(scales)


def read_end(outputs: Outputs) -> list[Detections]:
    """Return the rows with a sufficient score: the heads of v10 and v26 find each object once."""
    found = []
    for one in _table(outputs, 6, END):
        if one.shape[1] != 6:
            raise refuse(outputs, END)
        kept = one[one[:, 4] >= outputs.least].astype(np.float64)
        found.append(without_nan(Detections(kept[:, :4], kept[:, 4], np.nan_to_num(kept[:, 5]).astype(np.int64))))
    return found


def _in_rows(outputs: Outputs, first: int = 4, end: int | None = None) -> tuple[int, Array] | None:
    """Return the scores after the boxes of rows for :attr:`Layout.scores`."""
    found = outputs.arrays[0]
    return (0, seen(found[0, :, first:end], 0)) if found.ndim == 3 else None


def _in_columns(outputs: Outputs) -> tuple[int, Array] | None:
    """Return the scores below the boxes of columns for :attr:`Layout.scores`."""
    found = outputs.arrays[0]
    return (0, seen(found[0, 4:], 1)) if found.ndim == 3 else None


def _table(outputs: Outputs, width: int, needs: str) -> Array:
    """Return the first output, N x P x Q; exports of v5 to v7 may have maps as further outputs."""
    found = outputs.arrays[0]
    if found.ndim != 3 or len(found) != outputs.samples or found.shape[2] < width:
        raise refuse(outputs, needs)
    return found


def _scored(rows: Array, outputs: Outputs) -> Detections:
    """Return the candidates of A x (5 + C) rows."""
    some = _likely(rows, rows[:, 4], outputs).astype(np.float32)
    return pairs(corners(some[:, :4].astype(np.float64)), some[:, 4:5] * some[:, 5:], outputs)


def _likely(rows: Array, most: Array, outputs: Outputs) -> Array:
    """Return the rows whose maximum score is sufficient, which removes most rows of an image."""
    return rows[np.flatnonzero(most >= outputs.least)]


MAPS = "a map per stride, N x 3 x H x W x (5 + C) or N x (3 * (5 + C)) x H x W, before the sigmoid"

V5_ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
V7_ANCHORS = (((12, 16), (19, 36), (40, 28)), ((36, 75), (76, 55), (72, 146)), ((142, 110), (192, 243), (459, 401)))
"""Width and height in pixels, per stride 8, 16, 32, of the published configurations for COCO."""


def fits_maps(outputs: Outputs) -> bool:
    """Return whether there is a map for each of three strides, with three boxes per cell."""
    arrays = outputs.arrays
    if len(arrays) != len(V5_ANCHORS) or any(one.ndim not in (4, 5) or len(one) != outputs.samples for one in arrays):
        return False
    grown = [_split(one) for one in arrays]
    sides = [one.shape[2:4] for one in grown if one is not None]
    halves = all((2 * b[0], 2 * b[1]) == tuple(a) for a, b in pairwise(sides))
    return len(sides) == len(arrays) and halves


def _split(found: Array) -> Array | None:
    """Return a map as N x 3 x H x W x (5 + C); ``None`` if the shape does not fit."""
    if found.ndim == 5:
        return found if found.shape[1] == ANCHORS and found.shape[4] > 5 else None
    if found.ndim != 4 or found.shape[1] % ANCHORS or found.shape[1] < 6 * ANCHORS:
        return None
    samples, channels, rows, columns = found.shape
    return found.reshape(samples, ANCHORS, channels // ANCHORS, rows, columns).transpose(0, 1, 3, 4, 2)


def _read_maps(outputs: Outputs, anchors: tuple[tuple[tuple[int, int], ...], ...]) -> list[Detections]:
    """Decode the maps: x = (2 s(x) - 0.5 + column) * stride, w = (2 s(w))^2 * anchor, s the sigmoid."""
    made = [_split(one) for one in outputs.arrays]
    sizes = outputs.note.get("anchors", anchors)
    strides = outputs.note.get("strides") or [8 << level for level in range(len(made))]
    if any(one is None for one in made) or len(sizes) != len(made) or len(strides) != len(made):
        raise refuse(outputs, f"{MAPS}, with as many maps as anchors")
    if any(len(own) != ANCHORS for own in sizes):
        raise ModelError(f"metadata 'detection': anchors {list(sizes)} must have {ANCHORS} per map")
    maps = list(zip(made, sizes, strides, strict=True))
    return [
        joined([_of_map(grown[i], own, stride, outputs) for grown, own, stride in maps if grown is not None])
        for i in range(outputs.samples)
    ]


def _of_map(found: Array, anchors: Sequence[Sequence[float]], stride: int, outputs: Outputs) -> Detections:
    """Return the candidates of one image's map, 3 x H x W x (5 + C)."""
    kinds, rows, columns = np.nonzero(found[..., 4] >= logit(outputs.least))
    some = sigmoid(found[kinds, rows, columns])
    some[:, :2] = (2 * some[:, :2] - 0.5 + np.stack([columns, rows], axis=1)) * stride
    some[:, 2:4] = (2 * some[:, 2:4]) ** 2 * np.array(anchors, np.float32)[kinds]
    return _scored(some, outputs)


READ_V5_MAPS, READ_V7_MAPS = partial(_read_maps, anchors=V5_ANCHORS), partial(_read_maps, anchors=V7_ANCHORS)
"""Decode maps with the note's anchors, else those published with YOLOv5 or YOLOv7."""


def _fits_v7_maps(outputs: Outputs) -> bool:
    return "anchors" not in outputs.note and fits_maps(outputs)


LAYOUTS = (
    Layout("yolov5", f"{V5}; three boxes per cell (v5, v7)", read_v5, FITS_V5, box_format="cxcywh", scores=_in_rows),
    Layout("yolov6", f"{V5}; one box per cell (v6)", read_v5, FITS_FREE, box_format="cxcywh", scores=_in_rows),
    Layout("yolov8", f"{V8} (v8, v9, v11, v12)", read_v8, fits_v8, box_format="cxcywh", scores=_in_columns),
    Layout("yolov10", f"{END} (v10, v26)", read_end, fits_end, final=True, scores=partial(_in_rows, end=5)),
    Layout("yolox", X, read_x, FITS_FREE, scores=_in_rows),
    Layout("yolov5_maps", f"{MAPS}; anchors of YOLOv5, or stored ones", READ_V5_MAPS, fits_maps, takes_logits=True),
    Layout("yolov7_maps", f"{MAPS}; anchors of YOLOv7", READ_V7_MAPS, _fits_v7_maps, takes_logits=True),
)
