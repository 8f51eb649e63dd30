"""Decoding of a YOLO model's output: layouts, candidates, suppression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.postprocess.pytorch.yolo_boxes import xywh2xyxy
from utils.postprocess.pytorch.yolo_console import LOGGER
from utils.torch_array import as_array


@dataclass(frozen=True)
class Selection:
    """Selection of candidates: the arguments of ``postprocess`` with the same names."""

    conf_thres: float
    iou_thres: float
    classes: Sequence[int] | int | None
    agnostic: bool
    multi_label: bool
    max_det: int
    nm: int
    max_nms: int

    def __post_init__(self) -> None:
        for name in ("conf_thres", "iou_thres"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} {getattr(self, name)} must be from 0 to 1")
        for name in ("max_det", "nm", "max_nms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} {getattr(self, name)} must not be negative")


OBJECT, PLAIN, FINAL = "object", "plain", "final"
"""Columns after a row's box: an object score and class scores, class scores only, or one score and its class."""

_FEWEST, _MOST = 100, 1000
"""Minimum boxes of any model, and maximum boxes of heads of the layout :data:`FINAL`."""

_ONE = 1.001
"""Maximum score, with rounding."""


def first_of(prediction: Any) -> Any:
    """Return the first of a model's outputs, also from nested lists. Raises InputError if there is none."""
    while isinstance(prediction, (list, tuple)):
        if not len(prediction):
            raise InputError("the list of outputs is empty; pass at least one prediction")
        prediction = prediction[0]
    return prediction


def table(prediction: Any, nm: int, names: int) -> tuple[Array, str]:
    """Return a model's output as N x A x columns, and the meaning of the columns.

    - :data:`OBJECT`, N x A x (5 + C + nm): centre, width, height in pixels, object score, class scores, mask
      coefficients, as of YOLOv5, v6 and v7.
    - :data:`PLAIN`, N x (4 + C + nm) x A: the same without the object score, as of v8, v9, v11 and v12.
    - :data:`FINAL`, N x A x 6: left, top, right, bottom, score, class, each object once, as of v10 and v26. Recognised
      by its numbers: 100 to 1000 rows in descending order of scores, integer classes, and ordered corners.

    ``prediction`` is one of these, or a list or tuple of outputs, whose first is used. N may be missing for one image.
    The number of class names distinguishes the first two layouts if it fits one of them; otherwise the second one is
    recognised by more boxes than rows, and at least 100, or by scores from 0 to 1 only there. Raises InputError if the
    shape fits no layout.
    """
    found = as_array(first_of(prediction), "prediction")
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3:
        raise InputError(
            f"prediction of shape {found.shape} is neither N x A x (5 + C) nor N x (4 + C) x A; export the model with "
            "its decoding inside"
        )
    rows, columns = found.shape[1:]
    in_rows = columns == 5 + names + nm or (rows != 4 + names + nm and columns < max(rows + 1, _FEWEST))
    if in_rows and 5 + nm <= rows < columns and _are_shares(found[:, 4 : rows - nm]):
        in_rows = _are_shares(found[..., 4 : columns - nm])
    width = columns if in_rows else rows
    if width < (6 if in_rows else 5) + nm:
        raise InputError(
            f"prediction of shape {found.shape} has {width} numbers for each box; N x A x (5 + C) needs at least "
            f"{6 + nm}, N x (4 + C) x A {5 + nm}"
        )
    if not in_rows:
        return found.transpose(0, 2, 1), PLAIN
    return found, FINAL if columns == 6 and nm == 0 and _is_final(found) else OBJECT


def _are_shares(scores: Array) -> bool:
    """Return whether all scores are from 0 to 1, with rounding of float16."""
    return bool(((scores >= 0) & (scores <= _ONE)).all())


def _is_final(rows: Array) -> bool:
    """Return whether rows of six numbers are corners, a score and a class.

    All conditions must hold, because rows of a model of one class have six numbers too.
    """
    if not _FEWEST <= rows.shape[1] <= _MOST:
        return False
    known = np.where(np.isnan(rows).any(axis=-1, keepdims=True), 0, rows)
    boxes, scores, labels = known[..., :4], rows[..., 4], known[..., 5]
    falling = not (np.diff(scores, axis=1) > 0).any()  # NaN is ignored
    ordered = (boxes[..., 2:] >= boxes[..., :2]).all()
    return bool(falling and ordered and (labels == np.rint(labels)).all() and (labels >= 0).all())


def kept(rows: Array, layout: str, selection: Selection, known: Any = None) -> Array:
    """Return the selected boxes of one image, highest score first, n x (6 + nm) float32.

    The columns are left, top, right, bottom in pixels of the input, confidence, class, mask coefficients. ``rows`` are
    A x columns of :func:`table` in its layout. ``known`` are objects, m x 5: class, centre x, centre y, width, height
    in pixels of the input; they are added with score 1, except for :data:`FINAL`.
    """
    if layout == FINAL:
        _warn_of_nan(rows[:, 4:].max(axis=1))
        found = rows[rows[:, 4] > selection.conf_thres].astype(np.float32)
        found = found[~np.isnan(found).any(axis=1)]
    else:
        found = _candidates(rows, layout == OBJECT, selection, known)
    if selection.classes is not None:
        numbers = as_array(selection.classes, "classes") if np.size(selection.classes) else np.empty(0)
        found = found[np.isin(found[:, 5], numbers)]
    if len(found) > selection.max_nms:
        found = found[np.argsort(-found[:, 4], kind="stable")[: selection.max_nms]]
    # the indices serve as classes, to find the other columns of the boxes that are kept
    waiting = Detections(found[:, :4], found[:, 4], np.arange(len(found)))
    groups = np.zeros(len(found), np.int64) if selection.agnostic else found[:, 5].astype(np.int64)
    groups = waiting.classes if layout == FINAL else groups
    stay = non_maximum_suppression(waiting, selection.iou_thres, selection.max_det, groups)
    return found[stay.classes]


def _candidates(rows: Array, has_object: bool, selection: Selection, known: Any) -> Array:
    """Return the pairs of box and class with a score above the threshold, in the columns of :func:`kept`."""
    start, end = (5 if has_object else 4), rows.shape[1] - selection.nm
    most = rows[:, 4] if has_object else rows[:, 4:end].max(axis=1)
    _warn_of_nan(most)
    likely = rows[most > selection.conf_thres].astype(np.float32)
    scores = likely[:, start:end] * likely[:, 4:5] if has_object else likely[:, start:end]
    boxes, masks = xywh2xyxy(likely[:, :4]), likely[:, end:]
    if known is not None and len(known):
        own = _known(known, end - start)
        sure = np.zeros((len(own), scores.shape[1]), np.float32)
        sure[np.arange(len(own)), own[:, 0].astype(np.int64)] = 1.0
        boxes, scores = np.concatenate([boxes, xywh2xyxy(own[:, 1:5])]), np.concatenate([scores, sure])
        masks = np.concatenate([masks, np.zeros((len(own), selection.nm), np.float32)])
    if selection.multi_label and scores.shape[1] > 1:
        places, labels = np.nonzero(scores > selection.conf_thres)
    else:
        best = np.nan_to_num(scores, nan=-1.0).argmax(axis=1)
        places = np.flatnonzero(scores[np.arange(len(scores)), best] > selection.conf_thres)
        labels = best[places]
    columns = (boxes[places], scores[places, labels, None], labels[:, None], masks[places])
    made: Array = np.concatenate(columns, axis=1, dtype=np.float32)
    if made[:, 4].max(initial=0.0) > _ONE:
        LOGGER.warning("confidences are up to %g: not probabilities, or another layout", made[:, 4].max())
    return made[~np.isnan(made[:, :4]).any(axis=1)]


def _warn_of_nan(scores: Array) -> None:
    count = np.count_nonzero(np.isnan(scores))
    if count:
        LOGGER.warning("%d of %d boxes have NaN scores and are left out", count, len(scores))


def _known(known: Any, classes: int) -> Array:
    """Return known objects, m x 5 float32."""
    own = as_array(known, "labels").astype(np.float32)
    if own.ndim != 2 or own.shape[1] != 5:
        raise InputError(f"labels of shape {own.shape} are not objects; pass m x 5: class, centre x, centre y, w, h")
    if not ((own[:, 0] >= 0) & (own[:, 0] < classes)).all():
        raise InputError(f"labels name class {own[:, 0].max():g}; the prediction has {classes} classes, from 0")
    return own
