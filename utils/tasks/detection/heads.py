"""From a detector's raw outputs to each picture's detections: the layout is chosen, read, and suppressed where it must.

What decides is a flag, else what the export stored under ``detection``, else the usual value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import reason_of
from utils.outputs import GRAPH, PROBABILITIES
from utils.postprocess.image.box_forms import NMS, USUAL, BoxForm, raw_score, reformed
from utils.postprocess.image.class_maps import log_odds, logarithms
from utils.postprocess.image.layouts import NOTE, Layout, Outputs, choose
from utils.postprocess.image.layouts.base import highest, softmax
from utils.postprocess.image.layouts.noted import problem_of
from utils.postprocess.image.layouts.plausible import refuse_improbable, refuse_prototypes, refuse_score
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.letterbox import Geometry, to_picture
from utils.tasks.base import Options
from utils.tasks.model import Model

VALID_SCORE, OTHERS_SCORE = 0.001, 0.25
"""Defaults of ``--score_threshold``, of ``valid`` and of the others: mAP wants the unsure detections too."""

IOU, MOST = 0.5, 100
"""Usual values of ``--iou_threshold`` and ``--max_detections``."""


def note(model: Model) -> Mapping[str, Any]:
    """Return what the export stored for detection.

    Raises:
        ModelError: it is no JSON object, or a value in it cannot be.
    """
    found = model.stored.json(NOTE, {})
    if not isinstance(found, dict):
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: not a JSON object; export the model again")
    problem = problem_of(found)
    if problem is not None:
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {problem}; export the model again")
    return found


def threshold(name: str, model: Model, options: Options, usual: float) -> float:
    """Return a threshold: the flag's, else the stored one, else the usual one.

    Raises:
        ModelError: the stored one is not from 0 to 1.
    """
    given = getattr(options, name, None)
    found = note(model).get(name, usual) if given is None else given
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= 1:
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {name} {found!r} must be from 0 to 1; export it again")
    return float(found)


def least_score(model: Model, options: Options, valid: float = VALID_SCORE, others: float = OTHERS_SCORE) -> float:
    """Return the score below which nothing is a detection; a stored one is meant for an evaluation."""
    if options.script == "valid":
        return threshold("score_threshold", model, options, valid)
    return others if options.score_threshold is None else float(options.score_threshold)


def most(model: Model, options: Options, usual: int = MOST) -> int:
    """Return how many detections an image has at most."""
    given = options.max_detections
    return int(note(model).get("max_detections") or usual if given is None else given)


def overlap(model: Model, options: Options) -> float:
    """Return the intersection over union from which on the less sure of two boxes goes."""
    return threshold("iou_threshold", model, options, IOU)


def detections(
    outputs: Any,
    contexts: Sequence[Geometry],
    model: Model,
    options: Options,
    size: tuple[int, int] | None,
    form: BoxForm = USUAL,
    nms: str = NMS[0],
) -> list[Detections]:
    """Return what was found in each picture, in its own pixels, the surest first.

    Args:
        outputs: of a call of the model.
        contexts: how each picture lies in the input.
        model: says the names of the outputs, and what its export stored.
        options: the flags.
        size: height and width of the input in pixels, ``None`` where the batch decided.
        form: in which form the boxes, scores and classes are that the layout reads.
        nms: which surer boxes make one go, one of :data:`~utils.postprocess.image.box_forms.NMS`.

    Raises:
        InputError: the outputs do not have the layout's shapes, or no known layout.
        ModelError: the outputs may have several layouts.
    """
    found, layout = raw_candidates(outputs, contexts, model, options, size, form, probable=True)
    if form != USUAL:
        found = [reformed(one, form, layout.box_format, size) for one in found]
    iou, limit = overlap(model, options), most(model, options)
    return [_finished(one, geometry, layout, nms, iou, limit) for one, geometry in zip(found, contexts, strict=True)]


def _read(layout: Layout, seen: Outputs, model: Model) -> list[Detections]:
    """Return the candidates; what cannot be read is told with the model's name."""
    try:
        return layout.read(seen)
    except (InputError, ModelError) as error:
        raise type(error)(f"{model.ckpt}: layout {layout.name}: {error}") from error
    except (TypeError, ValueError, IndexError) as error:
        if not seen.note:
            raise
        raise ModelError(
            f"{model.ckpt}: layout {layout.name}: metadata {NOTE!r} does not fit the outputs ({reason_of(error)}); "
            "export the model again"
        ) from error


def raw_candidates(
    outputs: Any,
    contexts: Sequence[Geometry],
    model: Model,
    options: Options,
    size: tuple[int, int] | None,
    form: BoxForm,
    least: float | None = None,
    probable: bool = False,
) -> tuple[list[Detections], Layout]:
    """Return every picture's candidates as their layout reads them, and the layout; arguments as of :func:`detections`.

    Those stay whose score is sufficient in its form, or at least ``least`` as it is; a softmax is taken already.

    Args:
        probable: refuse scores that are to be probabilities and are not from 0 to 1.
    """
    outputs = as_outputs(outputs, contexts, model, options, size)
    with _named(model.ckpt):
        refuse_prototypes(outputs)
    layout = choose(outputs, options.layout, model.ckpt)
    if layout.takes_logits:
        outputs = replace(outputs, arrays=_logits(outputs, model))
    probable = probable and form.score_form == "probability"
    if probable:
        with _named(f"{model.ckpt}: layout {layout.name}"):
            refuse_improbable(outputs, layout)
    if form.score_form == "softmax" and layout.rows is not None:
        outputs = replace(outputs, arrays=layout.rows(outputs, softmax))
    elif form.score_form == "softmax":
        raise ModelError(f"layout {layout.name} has no row of scores to take a softmax of; leave out --score_form")
    least = raw_score(outputs.least, form) if least is None else least
    found = _read(layout, replace(outputs, least=least), model)
    if probable:
        place = layout.scores(outputs) if layout.scores is not None else None
        with _named(f"{model.ckpt}: layout {layout.name}"):
            top = max((float(one.scores.max(initial=0)) for one in found), default=0.0)
            refuse_score(top, outputs, None if place is None else place[0])
    return found, layout


@contextmanager
def _named(what: object) -> Iterator[None]:
    """Put a name before what is wrong with outputs."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def _logits(outputs: Outputs, model: Model) -> tuple[Array, ...]:
    """Return outputs for a layout that applies a sigmoid or a softmax itself: what the graph did already is undone.

    Of a softmax the logarithms are taken, of a sigmoid the log odds; boxes stay.
    """
    found = []
    for place, array in enumerate(outputs.arrays):
        form = model.forms.of(place)
        is_score = form.source == GRAPH and form.kind == PROBABILITIES and "box" not in outputs.names[place]
        if not is_score or array.dtype.kind != "f":
            found.append(array)
        else:
            found.append(logarithms(array) if form.operator == "Softmax" else log_odds(array))
    return tuple(found)


def _finished(found: Detections, geometry: Geometry, layout: Layout, nms: str, iou: float, limit: int) -> Detections:
    """Return one image's answer from its candidates."""
    if layout.clipped:
        # each axis is scaled by one factor, which no intersection over union sees
        found = found._replace(boxes=to_picture(found.boxes, geometry))
    if layout.final or nms == "none":
        kept = highest(found, limit)
    else:
        together = np.zeros_like(found.classes) if nms == "all" else None
        kept = non_maximum_suppression(found, iou, limit, together)
    return kept if layout.clipped else kept._replace(boxes=to_picture(kept.boxes, geometry))


def as_outputs(
    outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options, size: tuple[int, int] | None
) -> Outputs:
    """Return outputs with what is known about them; arguments as of :func:`detections`."""
    other = model.stored.text("task") if model.stored.is_ultralytics else "detect"
    if other not in ("detect", None):
        raise ModelError(f"{model.ckpt}: its export says task {other!r}; detection takes 'detect', export such a model")
    arrays = tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)
    names = tuple(spec.name for spec in model.outputs) if len(model.outputs) == len(arrays) else ()
    names = names or tuple(f"output_{i}" for i in range(len(arrays)))
    labels = model.stored.labels
    return Outputs(
        names,
        arrays,
        len(contexts),
        places(contexts),
        size,
        None if labels is None else len(labels),
        note(model),
        least_score(model, options),
        bool(options.best_class),
    )


def places(contexts: Sequence[Geometry]) -> Array:
    """Return N x 4: left, top, width and height of each picture in pixels of the input."""
    rows = [(one.left, one.top, one.width * one.across, one.height * one.down) for one in contexts]
    return np.array(rows, np.float64).reshape(-1, 4)
