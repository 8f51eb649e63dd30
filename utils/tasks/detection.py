"""Object detection: boxes, classes and scores in pictures; the metric is COCO's mAP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError, ModelError
from utils.datasets.base import Dataset
from utils.datasets.boxes import load_boxes
from utils.metrics.base import Metric
from utils.metrics.detection import MeanAveragePrecision
from utils.postprocess.image.box_forms import corners, labelled, probabilities
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import Geometry, letterbox, to_picture
from utils.tasks.base import Artifact, Choice, Flag, Options, Task
from utils.tasks.detection_choices import CHOICES, FLAGS as CHOSEN, KEY, box_form, check, chosen, laying, normalised
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.templates.squares import TEMPLATE

SHOWN = 10
"""Objects that the answer's line names; the JSON has all."""

SCORES = {"valid": 0.001}
"""Default of ``--score_threshold`` by script, as is usual: mAP wants the unsure detections too, a person does not."""

OTHERS_SCORE = 0.25


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the pictures, and their objects where they are known (:func:`~utils.datasets.boxes.load_boxes`)."""
    return load_boxes(paths["data"])


def prepare(samples: Sequence[Path], model: Model, options: Options, *, out: Array | None = None) -> Prepared:
    """Lay the pictures into the model's input; their geometry is the context.

    How they are laid in, and in which range of values and order of channels, flags or the export say
    (:mod:`utils.tasks.detection_choices`).

    Args:
        samples: paths of pictures.
        model: its first input is N x 3 x H x W.
        options: ``input_size``, where it is given, is H and W.
        out: an array of N x 3 x H x W to write into.

    Raises:
        DataError: a picture cannot be read.
        ConfigError: the input's size is not known.
    """
    size, found = _size(model, options), chosen(model, options)
    placed = laying(found)
    result = np.empty((len(samples), 3, *size), model.dtype) if out is None else out
    contexts = []
    for place, path in zip(result, samples, strict=True):
        picture, geometry = letterbox(open_image(path), size, placed)
        place[...] = normalised(picture, found, model)
        contexts.append(geometry)
    return Prepared([result], contexts)


def decode(outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options) -> list[Detections]:
    """Return what was found in each picture, in its own pixels, the surest first.

    The model has two outputs: ``boxes``, N x Q x 4, and ``scores``, N x Q x C, one per class and query, in the form
    that flags or the export say; without these names they are taken in this order. Every pair of query and class with a
    score of at least ``--score_threshold`` is a candidate; of candidates of a class that overlap by more than
    ``--iou_threshold`` the best stays (``--nms``); at most ``--max_detections`` come back. What has NaN as its score or
    in its box is no candidate.

    Raises:
        InputError: the outputs have other shapes.
    """
    boxes, scores = _head(outputs, model, len(contexts))
    found = chosen(model, options)
    form = box_form(found)
    size = _size(model, options) if form.box_units == "unit" else (1, 1)
    parts = zip(corners(boxes, form, size), probabilities(scores, form), contexts, strict=True)
    return [_found(*one, options, found) for one in parts]


def _found(boxes: Array, scores: Array, geometry: Geometry, options: Options, in_use: Mapping[str, Any]) -> Detections:
    """Return one picture's detections from its Q x 4 boxes and Q x C scores."""
    good = (scores >= _least(options)) & ~np.isnan(boxes).any(axis=1, keepdims=True)
    queries, columns = np.nonzero(good)
    classes = labelled(columns, box_form(in_use))
    if classes.size and classes.min() < 0:
        queries, columns, classes = queries[classes >= 0], columns[classes >= 0], classes[classes >= 0]
    candidates = Detections(boxes[queries].astype(np.float64), scores[queries, columns].astype(np.float64), classes)
    kept = _suppressed(candidates, in_use["nms"], in_use["iou_threshold"], options.max_detections)
    return kept._replace(boxes=to_picture(kept.boxes, geometry))


def _suppressed(found: Detections, nms: str, iou_threshold: float, limit: int) -> Detections:
    """Return the best detections after the suppression that was chosen."""
    if nms == "none":
        return Detections(*(column[np.argsort(-found.scores, kind="stable")[:limit]] for column in found))
    together = np.zeros_like(found.classes) if nms == "all" else None
    return non_maximum_suppression(found, iou_threshold, limit, together)


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return COCO's mAP; categories are found among the model's labels by name, where it stores labels."""
    return MeanAveragePrecision(model.stored.labels)


def show(sample: Path, prediction: Detections, model: Model, options: Options) -> Artifact:
    """Return the objects in words and as data, and the picture with their boxes drawn."""
    names = model.stored.labels
    if names is not None and max(prediction.classes.tolist(), default=-1) >= len(names):
        raise ModelError(
            f"{model.ckpt}: stores {len(names)} labels and found class {prediction.classes.max()}; "
            "export it with all labels"
        )
    answer = [
        {
            "label": names[label] if names else str(label),
            "score": round(score, 4),
            "box": [round(edge, 2) for edge in box],
        }
        for box, score, label in zip(*(column.tolist() for column in prediction), strict=True)
    ]
    return Artifact(_in_words(answer), answer, partial(_save_drawn, sample, answer))


def _in_words(answer: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f"{one['label']} {one['score']:.2f} at {','.join(str(round(edge)) for edge in one['box'])}"
        for one in answer[:SHOWN]
    ]
    rest = [f"and {len(answer) - SHOWN} more"] if len(answer) > SHOWN else []
    head = f"{len(answer)} object{'' if len(answer) == 1 else 's'}"
    return f"{head}: {'; '.join(parts + rest)}" if parts else head


def _save_drawn(sample: Path, answer: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_boxes import draw_boxes

    return save_drawn(sample, [_in_words(answer)], folder, draw_boxes(open_image(sample), answer))


def _size(model: Model, options: Options) -> tuple[int, int]:
    """Return height and width of the model's input."""
    given = _given(options)
    if given is not None:
        return given
    shape = model.inputs[0].shape
    if len(shape) != 4 or shape[1] not in (3, None):
        raise ConfigError(f"{model.ckpt}: its input is {list(shape)}; detection needs N x 3 x H x W")
    height, width = shape[2:]
    if height is None or width is None:
        raise ConfigError(f"{model.ckpt}: its input may have any height and width; say which with --input_size")
    return height, width


def _given(options: Options) -> tuple[int, int] | None:
    """Return height and width as ``--input_size`` says them."""
    given = options.input_size
    if given is None:
        return None
    sides = [given] if isinstance(given, int) else list(given)
    return sides[0], sides[-1]


def _least(options: Options) -> float:
    given = options.score_threshold
    return float(SCORES.get(options.script, OTHERS_SCORE) if given is None else given)


def _least_of(model: Model, options: Options) -> float:
    return _least(options)


def _most_of(model: Model, options: Options) -> int:
    return int(options.max_detections)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[Detections | None]:
    """Read the source framework's detections (:func:`~utils.datasets.box_results.read_box_results`)."""
    from utils.datasets.box_results import read_box_results

    return read_box_results(file, dataset, model.stored.labels)


def agreement(one: Detections, other: Detections) -> float:
    """Say how far two sets of detections agree (:func:`utils.metrics.detection_agreement.agreement`)."""
    from utils.metrics.detection_agreement import agreement as agreed

    return agreed(one, other)


def _input_size(options: Options) -> tuple[tuple[int | None, ...], ...] | None:
    given = _given(options)
    return None if given is None else ((None, 3, *given),)


def _head(outputs: Any, model: Model, samples: int) -> tuple[Array, Array]:
    """Return the outputs boxes and scores, checked."""
    found = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if len(found) != 2:
        raise InputError(f"{model.ckpt}: {len(found)} outputs; detection takes two, boxes and scores")
    names = [spec.name for spec in model.outputs]
    boxes, scores = found[::-1] if names == ["scores", "boxes"] else found
    if boxes.shape != (samples, *scores.shape[1:2], 4) or scores.ndim != 3 or len(scores) != samples:
        raise InputError(
            f"{model.ckpt}: boxes of shape {boxes.shape} and scores of {scores.shape} for {samples} samples; "
            "detection needs N x Q x 4 and N x Q x C"
        )
    return boxes, scores


def _check(options: Options) -> None:
    least = options.score_threshold
    if least is not None and not 0 <= least <= 1:
        raise ConfigError(f"--score_threshold {least} must be from 0 to 1")
    check(options)
    if options.max_detections < 1:
        raise ConfigError(f"--max_detections {options.max_detections} must be at least 1")
    given = _given(options)
    if given is not None and (
        min(given) < 1 or (not isinstance(options.input_size, int) and len(options.input_size) > 2)
    ):
        raise ConfigError(f"--input_size {options.input_size} must be one or two positive numbers: height and width")


FLAGS = (
    Flag(
        "--score_threshold",
        f"detections below this score are dropped (default: {SCORES['valid']} for valid, else {OTHERS_SCORE})",
        type=float,
    ),
    Flag("--max_detections", "most detections in a picture", 100, int),
    Flag("--input_size", "height (and width) of the input in pixels (default: the model's own)", None, int, nargs="+"),
    *CHOSEN,
)

LIMITS = (
    Choice("--score_threshold", (0.001, 0.01, 0.05, 0.1, 0.25, 0.3, 0.5), "decode", _least_of, fine=True),
    Choice("--max_detections", (100, 300, 1000), "decode", _most_of, fine=True),
)
"""What decides how many detections come back; the user's choice, and other programs have other ones."""

DETECTION = Task(
    name="detection",
    domain="detection",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    input_size=_input_size,
    check=_check,
    flags=FLAGS,
    template=TEMPLATE,
    data_help="a JSON file as COCO's, a folder of pictures, or a picture",
    choices=(*CHOICES, *LIMITS),
    answers=answers,
    agreement=agreement,
    stored_under=KEY,
)
"""Detection with the head that :func:`decode` describes; a model with another one replaces ``decode``."""
