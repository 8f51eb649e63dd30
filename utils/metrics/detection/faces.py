"""Metrics of face detection: precision, recall, average precision, landmark error, and false alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.detection.average_precision import RECORD, Curves, Ranked
from utils.metrics.detection.matching import shares
from utils.metrics.detection.metric import MeanAveragePrecision

FACE_RECORD = np.dtype([*RECORD.descr, ("error", np.float64), ("faceless", np.bool_), ("whole", np.bool_)])
"""A detection or a face, with the landmark error of a right detection (else NaN), and whether its image has no face; or
a ``whole`` image. 51 bytes."""

LABELS = ("face",)
SCORE = 0.5


class FaceAveragePrecision(MeanAveragePrecision):
    """The area under the curve of precision over recall at an overlap of 0.5, by Pascal VOC's rules.

    As in WIDER FACE's evaluation (Yang et al. 2016), a detection is matched to the face it overlaps most, and is
    ignored if this face is not evaluated (``crowd``).

    Args:
        labels: the model's classes; faces are found among a data set's categories by name.
        score: minimum score of detections for precision, recall, landmarks and false alarms.
        common: ignore objects that are not faces.

    Raises:
        ConfigError: the score is not from 0 to 1.
    """

    name = "AP50"
    dtype = FACE_RECORD

    def __init__(self, labels: Sequence[str] = LABELS, *, score: float = SCORE, common: bool = False) -> None:
        if not 0 <= score <= 1:
            raise ConfigError(f"the minimum score {score} of faces must be from 0 to 1")
        super().__init__(labels, rules="voc2012", common=common)
        self.name, self.score = type(self).name, score

    def secondary(self) -> Mapping[str, float]:
        """Return further figures at the score, without those that have no data.

        ``precision``, ``recall`` and their harmonic mean ``F1``; ``landmark_error``: the mean distance of the landmarks
        of right detections from the labelled ones, over the square root of the labelled box's area; ``false_alarms``:
        detections per image without faces, and ``faceless_pictures``: the number of these images.
        """
        records = self._all()
        found = records[(records["score"] >= self.score) & (records["ignored"][:, 0] == 0)]
        right = found[found["right"][:, 0] > 0]
        faces = int(np.count_nonzero(_faces(records)))
        figures = {}
        if len(found):
            figures["precision"] = len(right) / len(found)
        if faces:
            figures |= {"recall": len(right) / faces, "F1": 2 * len(right) / (len(found) + faces)}
        errors = right["error"][~np.isnan(right["error"])]
        if len(errors):
            figures["landmark_error"] = float(errors.mean())
        images = int(np.count_nonzero(records["whole"] & records["faceless"]))
        if images:
            figures["false_alarms"] = int(np.count_nonzero(found["faceless"])) / images
            figures["faceless_pictures"] = float(images)
        return figures

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return nothing, because there is one class."""
        return {}

    def _curves(self, ranked: Ranked) -> Curves:
        records = ranked.records
        if not _faces(records).any():
            alarms = np.count_nonzero(records["score"] >= self.score)
            images = np.count_nonzero(records["whole"])
            raise DataError(
                f"{self.name}: no image has a face to evaluate, so the value is undefined; in {images} images "
                f"{alarms} faces were detected at a score of {self.score:g}; add images with faces"
            )
        return ranked.of_size()

    def _image(self, prediction: Any, target: Any) -> Array:
        """Return the records of one image: its detections, its faces, and the image itself."""
        plain = super()._image(prediction, target)
        rows = np.zeros(len(plain) + 1, FACE_RECORD)
        for field in RECORD.names or ():
            rows[field][:-1] = plain[field]
        mine = self._classes(target) == 0
        rows["error"], rows["faceless"] = np.nan, not mine.any()
        whole = rows[-1:]
        whole["whole"], whole["score"], whole["rank"], whole["ignored"] = True, np.nan, 255, 1
        whole["image"] = target.number
        detections = rows[: np.count_nonzero(~np.isnan(plain["score"]))]
        points = getattr(target, "points", None)
        if points is not None and len(detections) and mine.any():
            boxes = np.asarray(target.boxes, np.float64)[mine]
            detections["error"] = self._errors(prediction, detections, boxes, np.asarray(points, np.float64)[mine])
        return rows

    def _errors(self, prediction: Any, detections: Array, boxes: Array, points: Array) -> Array:
        """Return the landmark error of every right detection whose face has landmarks; else NaN."""
        places = np.asarray(prediction.landmarks, np.float64)
        if places.shape != (len(prediction.scores), *points.shape[1:]):
            raise InputError(f"{self.name}: landmarks of shape {places.shape} for labelled ones of {points.shape}")
        order = np.lexsort((-np.asarray(prediction.scores, np.float64), np.asarray(prediction.classes)))
        mine = np.asarray(prediction.boxes, np.float64)[order]
        met = shares(mine, boxes, np.zeros(len(boxes), bool)).argmax(axis=1)
        away = np.linalg.norm(places[order] - points[met], axis=-1)
        known = ~np.isnan(away)
        mean = np.where(known, away, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        size = np.sqrt((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))[met]
        usable = known.any(axis=1) & (detections["right"][:, 0] > 0) & (size > 0)
        errors: Array = np.divide(mean, size, out=np.full(len(mean), np.nan), where=usable)
        return errors


def _faces(records: Array) -> Array:
    """Return which records are faces to evaluate."""
    real: Array = np.isnan(records["score"]) & ~records["whole"]
    return real
