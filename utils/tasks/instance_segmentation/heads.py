"""Outputs of models of instance segmentation: boxes with coefficients and prototypes, or boxes with masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils.postprocess.image.instances import Candidates, candidates_of
from utils.postprocess.image.layouts import NOTE
from utils.tasks import Model, Options
from utils.tasks.detection.heads import note

PROTOTYPES, BOX_MASKS = LAYOUTS = ("yolo_seg", "mask_rcnn")
"""``yolo_seg``: N x (4 + C + P) x A rows (centre, width, height, class scores, coefficients) and N x P x h x w
prototypes. ``mask_rcnn``: boxes (corners in pixels), labels, scores and masks (probabilities), N x Q x ..., or Q x ...
of one image; the final answer, without suppression."""

NAMES = ("boxes", "labels", "scores", "masks")

OUTSIDE = 0.02
"""Tolerance of probabilities outside of 0..1, for rounding."""


def layout_of(model: Model, options: Options) -> str:
    """Return the layout of the outputs: the flag's, else the stored one, else by their number.
    Raises ModelError if none fits."""
    given = options.layout or note(model).get("layout")
    if given is not None:
        if given not in LAYOUTS:
            raise model.unusable(NOTE, f"layout {given!r} is not one of {', '.join(LAYOUTS)}")
        return str(given)
    ranks = sorted(len(spec.shape) for spec in model.outputs)
    if ranks == [3, 4]:
        return PROTOTYPES
    if len(ranks) == 4:
        return BOX_MASKS
    shapes = ", ".join(f"{spec.name} {shape_text(spec.shape)}" for spec in model.outputs)
    raise ModelError(f"{model.ckpt}: its outputs ({shapes}) are not of a model of instance segmentation; pass --layout")


def prototypes_of(outputs: Any, samples: int, model: Model, least: float) -> list[tuple[Candidates, Array]]:
    """Return the candidates of each image in pixels of the input, and its prototypes, P x h x w.

    Raises:
        InputError: the outputs do not have the layout's shapes, or scores are not from 0 to 1.
    """
    arrays = sorted(outputs, key=np.ndim) if isinstance(outputs, (list, tuple)) else [outputs]
    ranks = [one.ndim for one in arrays]
    labels = None if model.stored.labels is None else len(model.stored.labels)
    if ranks != [3, 4] or any(len(one) != samples for one in arrays):
        raise _refused(model, PROTOTYPES, arrays, "N x (4 + C + P) x A and N x P x h x w")
    rows, maps = arrays
    classes = rows.shape[1] - 4 - maps.shape[1]
    if classes < 1 or (labels is not None and classes != labels):
        raise _refused(model, PROTOTYPES, arrays, f"N x (4 + {labels or 'C'} + P) x A and N x P x h x w")
    scores = rows[:, 4 : 4 + classes]
    _check(scores, model, PROTOTYPES)
    return [(candidates_of(one, classes, least), own) for one, own in zip(rows, maps, strict=True)]


def box_masks_of(outputs: Any, samples: int, model: Model, options: Options, least: float) -> list[Candidates]:
    """Return the objects of each image in pixels of the input, each with its mask, by falling score.

    Outputs are found by their names (``boxes``, ``labels``, ``scores``, ``masks``), else by their shapes and values.

    Raises:
        InputError: the outputs do not have the layout's shapes, or scores are not from 0 to 1.
    """
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    found = _named([spec.name for spec in model.outputs], arrays)
    if found is None:
        raise _refused(model, BOX_MASKS, arrays, "boxes N x Q x 4, labels N x Q, scores N x Q and masks N x Q x h x w")
    if found["boxes"].ndim == 2 and samples == 1:  # torchvision's export of one image
        found = {name: array[None] for name, array in found.items()}
    boxes, labels, scores, masks = (found[name] for name in NAMES)
    masks = masks[:, :, 0] if masks.ndim == 5 and masks.shape[2] == 1 else masks
    wanted = (samples, boxes.shape[1] if boxes.ndim == 3 else -1)
    if (
        boxes.shape != (*wanted, 4)
        or masks.ndim != 4
        or any(one.shape[:2] != wanted for one in (labels, scores, masks))
    ):
        raise _refused(model, BOX_MASKS, arrays, "boxes N x Q x 4, labels N x Q, scores N x Q and masks N x Q x h x w")
    _check(scores, model, BOX_MASKS)
    shift = int(options.class_offset or note(model).get("class_offset") or 0)
    return [_sure(*one, least, shift) for one in zip(boxes, labels, scores, masks, strict=True)]


def _named(names: Sequence[str], arrays: Sequence[Array]) -> Mapping[str, Array] | None:
    """Return boxes, labels, scores and masks, by name or else by shape; ``None`` if they are not clear."""
    if set(NAMES) <= set(names):
        return dict(zip(names, arrays, strict=True))
    masks = [one for one in arrays if one.ndim >= 4 or (one.ndim == 3 and one.shape[-1] != 4)]
    boxes = [one for one in arrays if one.ndim in (2, 3) and one.shape[-1] == 4 and one.dtype.kind == "f"]
    rest = [one for one in arrays if one.ndim in (1, 2) and not any(one is other for other in boxes)]
    labels, scores = ([one for one in rest if (one.dtype.kind in "iu") == whole] for whole in (True, False))
    if not all(len(some) == 1 for some in (masks, boxes, labels, scores)):
        return None
    return {"boxes": boxes[0], "labels": labels[0], "scores": scores[0], "masks": masks[0]}


def _sure(boxes: Array, labels: Array, scores: Array, masks: Array, least: float, shift: int) -> Candidates:
    """Return the objects of an image with at least this score, without NaN and background."""
    classes = np.nan_to_num(labels.astype(np.float64)).astype(np.int64) - shift
    with np.errstate(invalid="ignore"):
        usable = (scores >= least) & np.isfinite(boxes).all(axis=1) & (classes >= 0)
    places = np.flatnonzero(usable)
    places = places[np.argsort(-scores[places].astype(np.float64), kind="stable")]
    return Candidates(
        boxes[places].astype(np.float64), scores[places].astype(np.float64), classes[places], masks[places]
    )


def _check(scores: Array, model: Model, layout: str) -> None:
    """Raise InputError if scores are not probabilities; NaN is ignored."""
    values = scores[np.isfinite(scores)]
    if values.size and not -OUTSIDE <= values.min() <= values.max() <= 1 + OUTSIDE:
        worst = float(values.max()) if values.max() > 1 + OUTSIDE else float(values.min())
        raise InputError(
            f"{model.ckpt}: layout {layout}: a score of {worst:.4g}, but probabilities are 0 to 1; was it exported "
            "for instance segmentation, with all labels stored?"
        )


def _refused(model: Model, layout: str, arrays: Sequence[Array], wanted: str) -> InputError:
    shapes = ", ".join(shape_text(one.shape) for one in arrays)
    return InputError(
        f"{model.ckpt}: layout {layout}: outputs of shape {shapes}; expected {wanted}; store all labels in it, or "
        "pass --layout"
    )
