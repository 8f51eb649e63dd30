"""Faces in pictures: boxes, scores and five points; precision, recall, and no faces where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError, InputError
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.outputs import GRAPH, LOGITS, refuse_labels
from utils.postprocess.image.faces import HEADS, MOST, Faces, decode_faces
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import Geometry
from utils.tasks.base import Artifact, Flag, Options, Saver
from utils.tasks.detection import DETECTION, SHOWN, saver as saver_of_boxes
from utils.tasks.detection_choices import CHOICES
from utils.tasks.detection_data import check_classes
from utils.tasks.detection_heads import note, threshold
from utils.tasks.model import Model
from utils.tasks.outputs import sigmoid
from utils.tasks.templates.drawn_faces import TEMPLATE

LEAST = 0.05
"""Default of ``--score_threshold`` of an evaluation, whose average precision wants the unsure faces too."""

SURE = 0.5
"""The same of the other scripts, and the score at which precision and recall are told."""

IOU = 0.3
"""Default of ``--iou_threshold``: faces seldom lie over each other."""

MULTIPLE = 32
"""What the input's sides must be multiples of: CenterFace halves them five times."""

DECODING = ("layout", "best_class", "box_format", "box_units", "class_offset", "score_form", "nms", "metric")
"""Flags of detection that faces do not have."""

REPLACED = ("score_threshold", "iou_threshold", "max_detections")


def decode(outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options) -> list[Faces]:
    """Return the faces of each picture, in its own pixels, the surest first (:func:`decode_faces`).

    The maps are known by the names ``heatmap``, ``scale``, ``offset`` and ``landmarks``, or come in this order.

    Raises:
        InputError: the outputs are none such.
    """
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    by_name = {spec.name: array for spec, array in zip(model.outputs, arrays, strict=False)}
    if set(HEADS) <= set(by_name):
        arrays = [by_name[name] for name in HEADS]
    names = [spec.name for spec in model.outputs]
    form = model.form(None, names.index("heatmap") if "heatmap" in names else 0)
    refuse_labels(form, model.ckpt, "faces need a score for each cell", "")
    if (form.kind, form.source) == (LOGITS, GRAPH) and arrays:
        arrays[0] = sigmoid(arrays[0])
    most = int(note(model).get("max_detections") or MOST if options.max_detections is None else options.max_detections)
    overlap = threshold("iou_threshold", model, options, IOU)
    try:
        return decode_faces(arrays, contexts, _least(model, options), overlap, most)
    except InputError as error:
        raise InputError(f"{model.ckpt}: {error}") from error


def _least(model: Model, options: Options) -> float:
    """Return the score below which nothing is a face."""
    if options.script == "valid":
        return threshold("score_threshold", model, options, LEAST)
    return SURE if options.score_threshold is None else float(options.score_threshold)


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the average precision at an overlap of 0.5, with precision and recall beside it.

    Raises:
        DataError: the data set has objects that the model does not know.
    """
    from utils.metrics.faces import LABELS, FaceAveragePrecision

    labels = model.stored.labels or list(LABELS)
    check_classes(options, dataset, labels)
    return FaceAveragePrecision(labels, score=options.sure_score, common=options.common_classes)


def show(sample: Path, prediction: Faces, model: Model, options: Options) -> Artifact:
    """Return the faces in words and as data, and the picture with boxes and points drawn."""
    columns = (prediction.boxes, prediction.scores, prediction.landmarks)
    answer = [
        {
            "score": round(score, 4),
            "box": [round(edge, 2) for edge in box],
            "landmarks": [[round(x, 2), round(y, 2)] for x, y in points],
        }
        for box, score, points in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return Artifact(_in_words(answer), answer, partial(_save_drawn, sample, answer))


def _in_words(answer: Sequence[Mapping[str, Any]]) -> str:
    if not answer:
        return "no face"
    parts = [f"{one['score']:.2f} at {','.join(str(round(edge)) for edge in one['box'])}" for one in answer[:SHOWN]]
    rest = [f"and {len(answer) - SHOWN} more"] if len(answer) > SHOWN else []
    return f"{len(answer)} face{'' if len(answer) == 1 else 's'}: {'; '.join(parts + rest)}"


def _save_drawn(sample: Path, answer: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_boxes import draw_boxes

    objects = [{**one, "label": "face", "points": one["landmarks"]} for one in answer]
    return save_drawn(sample, [_in_words(answer)], folder, draw_boxes(open_image(sample), objects))


class FaceResults:
    """Writes the boxes as :class:`~utils.tasks.detection_results.BoxResults`, which has no points."""

    def __init__(self, boxes: Saver) -> None:
        self._boxes = boxes

    def see(self, batch: Batch, predictions: Sequence[Faces]) -> None:
        """Take in the faces of a batch."""
        self._boxes.see(batch, [as_detections(one) for one in predictions])

    def close(self) -> None:
        """Write the file."""
        self._boxes.close()


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes COCO's results format."""
    return FaceResults(saver_of_boxes(path, dataset, model, options))


def as_detections(faces: Faces) -> Detections:
    """Return the boxes and scores of faces alone."""
    return Detections(faces.boxes, faces.scores, faces.classes)


def _check(options: Options) -> None:
    DETECTION.check(options)
    given = options.input_size
    sides: list[int] = [] if given is None else [given] if isinstance(given, int) else list(given)
    odd = next((side for side in sides if side % MULTIPLE), None)
    if odd is not None:
        near = max(MULTIPLE, round(odd / MULTIPLE) * MULTIPLE)
        raise ConfigError(f"--input_size {odd} must be a multiple of {MULTIPLE}; use {near}")
    if options.script != "valid":
        return
    if not 0 <= options.sure_score <= 1:
        raise ConfigError(f"--sure_score {options.sure_score} must be from 0 to 1")
    if options.score_threshold is not None and options.score_threshold > options.sure_score:
        raise ConfigError(
            f"--score_threshold {options.score_threshold} leaves out faces that --sure_score {options.sure_score} asks "
            "for; lower the first"
        )


FLAGS = (
    Flag(
        "--score_threshold",
        f"faces below this score are dropped (default: what is stored, or {LEAST}, for valid, else {SURE})",
        type=float,
    ),
    Flag(
        "--iou_threshold",
        f"of two faces that overlap more than this, the surer one stays (default: what is stored, or {IOU})",
        type=float,
    ),
    Flag("--max_detections", f"most faces in a picture (default: what is stored, or {MOST})", None, int),
    Flag(
        "--sure_score",
        "score from which on faces count for precision, recall, points and false alarms",
        SURE,
        float,
        scripts=("valid",),
    ),
    *(flag for flag in DETECTION.flags if flag.key not in (*DECODING, *REPLACED)),
)

FACE_DETECTION = replace(
    DETECTION,
    name="face_detection",
    domain="face",
    decode=decode,
    metric=metric,
    show=show,
    check=_check,
    flags=FLAGS,
    template=TEMPLATE,
    first=True,
    data_help="WIDER FACE's or RetinaFace's list, COCO's JSON, VOC's folder, a folder of pictures, or a picture",
    choices=tuple(one for one in CHOICES if one.key not in (*DECODING, *REPLACED)),
    hinter=None,
    saver=saver,
    saves="the boxes as a JSON file in COCO's results format",
)
"""Detection whose answers have five points each: CenterFace's maps."""
