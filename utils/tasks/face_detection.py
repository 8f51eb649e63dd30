"""Faces in images: boxes, scores and five points; precision, recall, and no faces where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, InputError
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.outputs import GRAPH, LOGITS, refuse_labels
from utils.postprocess.image.faces import HEADS, MOST, Faces, decode_faces
from utils.postprocess.image.nms import Detections
from utils.tasks.base import Diagnostics, Flag, PredictionWriter, Rendering
from utils.tasks.common.outputs import sigmoid
from utils.tasks.detection.choices import CHOICES
from utils.tasks.detection.data import check_classes
from utils.tasks.detection.heads import least_score, most, threshold
from utils.tasks.detection.results import BoxResults
from utils.tasks.detection.task import Detection, in_words, rendering
from utils.tasks.legacy import LegacyTask
from utils.tasks.templates.drawn_faces import TEMPLATE

LEAST = 0.05
"""Default of ``--score_threshold`` of an evaluation, whose average precision wants the unsure faces too."""

SURE = 0.5
"""The same of the other scripts, and the score at which precision and recall are reported."""

IOU = 0.3
"""Default of ``--iou_threshold``: faces seldom lie over each other."""

MULTIPLE = 32
"""What the input's sides must be multiples of: CenterFace halves them five times."""

LEFT_OUT = (
    *("layout", "best_class", "box_format", "box_units", "class_offset", "score_form", "nms", "metric"),
    *("score_threshold", "iou_threshold", "max_detections"),
)
"""Flags of detection that faces do not have, or have with other defaults."""


class FaceDetection(Detection):
    """Detection whose answers have five points each: CenterFace's maps. Predictions are :class:`.Faces`."""

    name = "face_detection"
    domain = "face"
    template = TEMPLATE
    data_help = "WIDER FACE's or RetinaFace's list, COCO's JSON, VOC's folder, a folder of images, or an image"
    flags = (
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
        Flag("--max_detections", f"most faces in an image (default: what is stored, or {MOST})", None, int),
        Flag(
            "--sure_score",
            "score from which on faces count for precision, recall, points and false alarms",
            SURE,
            float,
            scripts=("valid",),
        ),
        *(flag for flag in Detection.flags if flag.key not in LEFT_OUT),
    )
    export_settings = tuple(one for one in CHOICES if one.key not in LEFT_OUT)
    writes = "the boxes as a JSON file in COCO's results format"

    def check(self) -> None:
        """Refuse values of flags that cannot be."""
        super().check()
        opt = self.options
        odd = next((side for side in self.sides if side % MULTIPLE), None)
        if odd is not None:
            near = max(MULTIPLE, round(odd / MULTIPLE) * MULTIPLE)
            raise ConfigError(f"--input_size {odd} must be a multiple of {MULTIPLE}; use {near}")
        if opt.script != "valid":
            return
        if not 0 <= opt.sure_score <= 1:
            raise ConfigError(f"--sure_score {opt.sure_score} must be from 0 to 1")
        if opt.score_threshold is not None and opt.score_threshold > opt.sure_score:
            raise ConfigError(
                f"--score_threshold {opt.score_threshold} leaves out faces that --sure_score {opt.sure_score} asks "
                "for; lower the first"
            )

    def decode(self, outputs: Any, contexts: Any) -> list[Faces]:
        """Return the faces of each image, in its own pixels, the surest first (:func:`decode_faces`).

        The maps are known by the names ``heatmap``, ``scale``, ``offset`` and ``landmarks``, or come in this order.

        Raises:
            InputError: the outputs are not such maps.
        """
        model, opt = self.model, self.options
        arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        names = [spec.name for spec in model.outputs]
        by_name = dict(zip(names, arrays, strict=False))
        if set(HEADS) <= set(by_name):
            arrays = [by_name[name] for name in HEADS]
        form = model.form(None, names.index("heatmap") if "heatmap" in names else 0)
        refuse_labels(form, model.ckpt, "faces need a score for each cell", "")
        if (form.kind, form.source) == (LOGITS, GRAPH) and arrays:
            arrays[0] = sigmoid(arrays[0])
        limit, overlap = most(model, opt, MOST), threshold("iou_threshold", model, opt, IOU)
        try:
            return decode_faces(arrays, contexts, least_score(model, opt, LEAST, SURE), overlap, limit)
        except InputError as error:
            raise InputError(f"{model.ckpt}: {error}") from error

    def metric(self, dataset: Dataset) -> Metric:
        """Return the average precision at an overlap of 0.5, with precision and recall beside it.

        Raises:
            DataError: the data set has objects that the model does not know.
        """
        from utils.metrics.detection.faces import LABELS, FaceAveragePrecision

        labels, common = self.labels or list(LABELS), self.options.common_classes
        check_classes(dataset, labels, common)
        return FaceAveragePrecision(labels, score=self.options.sure_score, common=common)

    def show(self, sample: Path, prediction: Faces) -> Rendering:
        """Return the faces in words and as data, and the image with boxes and points drawn."""
        columns = (prediction.boxes, prediction.scores, prediction.landmarks)
        answer: list[Mapping[str, Any]] = [
            {
                "score": round(score, 4),
                "box": [round(edge, 2) for edge in box],
                "landmarks": [[round(x, 2), round(y, 2)] for x, y in points],
            }
            for box, score, points in zip(*(column.tolist() for column in columns), strict=True)
        ]
        objects = [{**one, "label": "face", "points": one["landmarks"]} for one in answer]
        return rendering(sample, answer, objects, in_words(answer, "face") if answer else "no face")

    def diagnostics(self) -> Diagnostics | None:
        """Return nothing: faces have neither classes nor another form of boxes."""
        return None

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return what writes the boxes in COCO's results format."""
        return FaceResults(path, dataset, self.labels)


class FaceResults(BoxResults):
    """Writes the boxes and scores of faces; the format has no points."""

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Take in the faces of a batch."""
        super().see(batch, [as_detections(one) for one in predictions])


def as_detections(faces: Faces) -> Detections:
    """Return the boxes and scores of faces alone."""
    return Detections(faces.boxes, faces.scores, faces.classes)


FACE_DETECTION = LegacyTask.view(FaceDetection)
"""The same in the form before, for scripts that use ``dataclasses.replace``."""
