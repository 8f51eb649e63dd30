"""Postprocessing of a detector: choice of the layout, candidates, and non-maximum suppression.

Settings are a flag's value, else the one stored under ``detection``, else the default.
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
from utils.preprocess.image.letterbox import Geometry, to_image
from utils.tasks import Model, Options

VALID_SCORE, OTHERS_SCORE = 0.001, 0.25
"""Defaults of ``--score_threshold`` in ``valid`` and in other scripts: mAP also needs detections with low scores."""

IOU, MOST = 0.5, 100
"""Defaults of ``--iou_threshold`` and ``--max_detections``."""


def note(model: Model) -> Mapping[str, Any]:
    """Return the metadata ``detection``. Raises ModelError if it is not a JSON object, or a value in it is invalid."""
    found = model.stored.json(NOTE, {})
    if not isinstance(found, dict):
        raise model.unusable(NOTE, "not a JSON object")
    problem = problem_of(found)
    if problem is not None:
        raise model.unusable(NOTE, problem)
    return found


def threshold(name: str, model: Model, options: Options, usual: float) -> float:
    """Return a threshold: the flag's, else the stored one, else ``usual``.
    Raises ModelError if the stored one is not from 0 to 1."""
    given = getattr(options, name, None)
    found = note(model).get(name, usual) if given is None else given
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= 1:
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {name} {found!r} must be from 0 to 1; export it again")
    return float(found)


def least_score(model: Model, options: Options, valid: float = VALID_SCORE, others: float = OTHERS_SCORE) -> float:
    """Return the lowest score of a detection; a stored one is used in ``valid`` only."""
    if options.script == "valid":
        return threshold("score_threshold", model, options, valid)
    return others if options.score_threshold is None else float(options.score_threshold)


def shown(columns: Sequence[Array], scores: Array, options: Options, others: float = OTHERS_SCORE) -> Sequence[Array]:
    """Return the columns of detections without those of lower scores that only ``valid`` has."""
    if options.script != "valid":
        return columns
    return [column[scores >= others] for column in columns]


def most(model: Model, options: Options, usual: int = MOST) -> int:
    """Return the maximum number of detections per image."""
    given = options.max_detections
    return int(note(model).get("max_detections") or usual if given is None else given)


def overlap(model: Model, options: Options) -> float:
    """Return the intersection over union above which the box with the lower score is dropped."""
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
    """Return the detections of each image in its own pixels, by falling score.

    Args:
        outputs: of a call of the model.
        contexts: placement of each image in the input.
        model: its output names and metadata are read.
        options: the flags.
        size: height and width of the input in pixels; ``None``: they differ by batch.
        form: format of the boxes, scores and classes that the layout reads.
        nms: scope of suppression, one of :data:`~utils.postprocess.image.box_forms.NMS`.

    Raises:
        InputError: The outputs do not fit the layout, or a known one.
        ModelError: The outputs fit several layouts.
    """
    found, layout = raw_candidates(outputs, contexts, model, options, size, form, probable=True)
    if form != USUAL:
        found = [reformed(one, form, layout.box_format, size) for one in found]
    iou, limit = overlap(model, options), most(model, options)
    return [_finished(one, geometry, layout, nms, iou, limit) for one, geometry in zip(found, contexts, strict=True)]


def _read(layout: Layout, seen: Outputs, model: Model) -> list[Detections]:
    """Return the candidates; errors get the names of the model and the layout."""
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
    """Return the candidates of every image as the layout reads them, and the layout; see :func:`detections`.

    Candidates with a score below the threshold (in its form), or below ``least``, are dropped. A softmax is applied.

    Args:
        probable: raise if scores that should be probabilities are not from 0 to 1.
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
        raise ModelError(f"layout {layout.name} has a single score per box, without a softmax; leave out --score_form")
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
    """Prefix the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def _logits(outputs: Outputs, model: Model) -> tuple[Array, ...]:
    """Return outputs for a layout that applies a sigmoid or a softmax: if the graph did so, it is inverted.
    Of a softmax the logarithms are taken, of a sigmoid the log odds; boxes stay."""
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
    """Return one image's detections from its candidates."""
    if layout.clipped:
        # each axis is scaled by one factor, which does not change any intersection over union
        found = found._replace(boxes=to_image(found.boxes, geometry))
    if layout.final or nms == "none":
        kept = highest(found, limit)
    else:
        together = np.zeros_like(found.classes) if nms == "all" else None
        kept = non_maximum_suppression(found, iou, limit, together)
    return kept if layout.clipped else kept._replace(boxes=to_image(kept.boxes, geometry))


def as_outputs(
    outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options, size: tuple[int, int] | None
) -> Outputs:
    """Return the outputs with their names, sizes and metadata; see :func:`detections`."""
    other = model.stored.text("task") if model.stored.is_ultralytics else "detect"
    if other not in ("detect", None):
        raise ModelError(f"{model.ckpt}: its metadata has task {other!r}, expected 'detect'; export such a model")
    arrays = tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)
    names = tuple(spec.name for spec in model.outputs) if len(model.outputs) == len(arrays) else ()
    names = names or tuple(f"output_{i}" for i in range(len(arrays)))
    classes = None if model.stored.labels is None else len(model.stored.labels)
    rest = note(model), least_score(model, options), bool(options.best_class)
    return Outputs(names, arrays, len(contexts), places(contexts), size, classes, *rest)


def places(contexts: Sequence[Geometry]) -> Array:
    """Return N x 4: left, top, width and height of each image in pixels of the input."""
    rows = [(one.left, one.top, one.width * one.across, one.height * one.down) for one in contexts]
    return np.array(rows, np.float64).reshape(-1, 4)
