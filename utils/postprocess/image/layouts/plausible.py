"""Detection of outputs that fit a layout but have another meaning: exports for other tasks or other classes.

A pose or segmentation export of the YOLO family has the shape of a detector with more classes. Its "scores" are pixels,
angles or coefficients of masks, which are recognised because probabilities are from 0 to 1.
"""

from __future__ import annotations

import numpy as np

from engine import Array, InputError
from utils.postprocess.image.layouts.base import Layout, Outputs, refuse

OUTSIDE = 0.02
"""Tolerance for probabilities outside 0..1, by rounding (float16, int8)."""

MASKS = 32
"""Coefficients per mask of the YOLO family's segmentation exports."""


def refuse_prototypes(outputs: Outputs) -> None:
    """Raise InputError for a segmentation export: boxes N x P x Q and as second output prototypes N x M x h x w."""
    ranks = sorted(one.ndim for one in outputs.arrays)
    if ranks != [3, 4]:
        return
    boxes, masks = sorted(outputs.arrays, key=lambda one: one.ndim)
    if len(masks) == len(boxes) == outputs.samples and min(boxes.shape[1:]) > masks.shape[1] + 4:
        raise refuse(
            outputs,
            f"boxes and scores; these look like a segmentation export with {masks.shape[1]} coefficients per box and "
            "as many prototypes of masks: export the model for detection (task 'detect')",
        )


def refuse_improbable(outputs: Outputs, layout: Layout) -> None:
    """Raise InputError if a checked score that the layout reads as a probability is not; NaN is ignored."""
    if layout.scores is None or not outputs.samples:
        return
    found = layout.scores(outputs)
    if found is None:
        return
    place, scores = found
    values = scores[np.isfinite(scores)] if scores.dtype.kind == "f" else scores
    if values.size:
        refuse_score(float(values.min()), outputs, place)
        refuse_score(float(values.max()), outputs, place)


def refuse_score(score: float, outputs: Outputs, place: int | None = None) -> None:
    """Raise InputError if a score is not from 0 to 1; ``place`` is the index of its output, if known."""
    if -OUTSIDE <= score <= 1 + OUTSIDE or np.isnan(score):
        return
    if place is None:
        name, guess = f"outputs {', '.join(map(repr, outputs.names))} hold", ""
    else:
        array = outputs.arrays[place]
        name, guess = f"output {outputs.names[place]!r} {list(array.shape)} holds", _guess(array)
    raise InputError(
        f"{name} a score of {score:.4g}, but probabilities are from 0 to 1; {guess}use --score_form logit if "
        "scores are logits, or --layout NAME if the outputs have another layout"
    )


def _guess(array: Array) -> str:
    """Return a guess of the export's task, as part of a sentence; empty if there is none."""
    if array.ndim != 3:
        return ""
    width = min(array.shape[1:])
    kinds = []
    for size in (3, 2):
        count, rest = divmod(width - 5, size)
        if not rest and count == 17:  # COCO's
            kinds.append(f"of a pose (4 + 1 + {count} x {size} keypoints)")
    if width > MASKS + 4:
        kinds.append(f"of a segmentation (4 + {width - 4 - MASKS} + {MASKS} coefficients of masks)")
    task = " or ".join(kinds or ["of poses or rotated boxes"])
    return f"is it an export {task}? then export it for detection (task 'detect'); "
