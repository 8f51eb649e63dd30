"""Face detection: boxes, scores and five points per face; metrics average precision, precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError, InputError
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.outputs import GRAPH, LOGITS, refuse_labels
from utils.postprocess.image.faces import HEADS, MOST, Faces, decode_faces
from utils.postprocess.image.nms import Detections
from utils.tasks import Diagnostics, Flag, PredictionWriter, Rendering
from utils.tasks.common.image_input import given_sides
from utils.tasks.common.outputs import sigmoid
from utils.tasks.detection.choices import CHOICES
from utils.tasks.detection.heads import least_score, most, shown, threshold
from utils.tasks.detection.results import BoxResults
from utils.tasks.detection.task import Detection, check_classes, in_words, save_boxes
from utils.tasks.templates import sample_images

LEAST = 0.05
"""Default of ``--score_threshold`` in ``valid``: average precision also needs faces with low scores."""

SURE = 0.5
"""Default of ``--score_threshold`` in the other scripts, and the score at which precision and recall are reported."""

IOU = 0.3
"""Default of ``--iou_threshold``: faces seldom overlap."""

MULTIPLE = 32
"""The input's sides must be multiples of this: CenterFace halves them five times."""

LEFT_OUT = (
    *("layout", "best_class", "box_format", "box_units", "class_offset", "score_form", "nms", "metric"),
    *("score_threshold", "iou_threshold", "max_detections"),
)
"""Flags of detection that face detection does not have, or has with other defaults."""


class FaceDetection(Detection):
    """Detection of faces with five points each, from CenterFace's maps. Predictions are :class:`.Faces`."""

    name = "face_detection"
    domain = "face"
    template = sample_images.FACE_DETECTION
    data_help = "WIDER FACE's or RetinaFace's list, COCO's JSON, VOC's folder, a folder of images, or an image"
    flags = (
        Flag("--score_threshold", f"faces below this score are dropped (default: as stored, or {LEAST}, in valid, else "
             f"{SURE})", type=float),
        Flag("--iou_threshold", "of faces that overlap more than this, the best one stays (default: as stored, or "
             f"{IOU})", type=float),
        Flag("--max_detections", f"most faces in an image (default: as stored, or {MOST})", None, int),
        Flag("--sure_score", "lowest score of faces that precision, recall, points and false alarms are computed from",
             SURE, float, scripts=("valid",)),
        *(flag for flag in Detection.flags if flag.key not in LEFT_OUT),
    )  # fmt: skip
    export_settings = tuple(one for one in CHOICES if one.key not in LEFT_OUT)
    writes = "the boxes as a JSON file in COCO's results format"

    def check(self) -> None:
        """Check the options."""
        super().check()
        opt = self.options
        odd = next((side for side in given_sides(opt) if side % MULTIPLE), None)
        if odd is not None:
            near = max(MULTIPLE, round(odd / MULTIPLE) * MULTIPLE)
            raise ConfigError(f"--input_size {odd} must be a multiple of {MULTIPLE}; use {near}")
        if opt.script != "valid":
            return
        if not 0 <= opt.sure_score <= 1:
            raise ConfigError(f"--sure_score {opt.sure_score} must be from 0 to 1")
        if opt.score_threshold is not None and opt.score_threshold > opt.sure_score:
            raise ConfigError(
                f"--score_threshold {opt.score_threshold} must not be above --sure_score {opt.sure_score}; lower it"
            )

    def decode(self, outputs: Any, contexts: Any) -> list[Faces]:
        """Return the faces of each image in its own pixels, by falling score (:func:`decode_faces`).

        The maps are found by the names ``heatmap``, ``scale``, ``offset`` and ``landmarks``, or else taken in this
        order.

        Raises:
            InputError: The outputs are not such maps.
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
        """Return the average precision at an overlap of 0.5, with precision and recall as further figures.
        Raises DataError if the data set has objects of a class that the model lacks."""
        from utils.metrics.detection.faces import LABELS, FaceAveragePrecision

        labels, common = self.labels or list(LABELS), self.options.common_classes
        check_classes(dataset, labels, common)
        return FaceAveragePrecision(labels, score=self.options.sure_score, common=common)

    def show(self, sample: Path, prediction: Faces) -> Rendering:
        """Return the faces as text and as data; saving draws boxes and points on the image."""
        columns = shown(
            (prediction.boxes, prediction.scores, prediction.landmarks), prediction.scores, self.options, SURE
        )
        answer: list[dict[str, Any]] = [
            {
                "score": round(score, 4),
                "box": [round(edge, 2) for edge in box],
                "landmarks": [[round(x, 2), round(y, 2)] for x, y in points],
            }
            for box, score, points in zip(*(column.tolist() for column in columns), strict=True)
        ]
        self.add_tracks(answer)
        objects = [{**one, "label": "face", "points": one["landmarks"]} for one in answer]
        text = in_words(answer, "face") if answer else "no face"
        return Rendering(text, answer, partial(save_boxes, sample, objects, text))

    def diagnostics(self) -> Diagnostics | None:
        """Return ``None``: faces have one class and one box format."""
        return None

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return a writer of COCO's results format."""
        return FaceResults(path, dataset, self.labels)


class FaceResults(BoxResults):
    """Writes the boxes and scores of faces; the format has no points."""

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Add the faces of a batch."""
        super().see(batch, [as_detections(one) for one in predictions])


def as_detections(faces: Faces) -> Detections:
    """Return the boxes and scores of faces alone."""
    return Detections(faces.boxes, faces.scores, faces.classes)
