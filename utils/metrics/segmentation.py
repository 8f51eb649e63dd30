"""Metrics of segmentation: mean intersection over union, from the confusion matrix of every image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, InputError
from utils.metrics.base import RecordMetric, Records

RECORD = np.dtype([("real", np.int32), ("found", np.int32), ("pixels", np.uint32)])
"""A nonzero cell of one image's confusion matrix: pixels of class ``real`` predicted as ``found`` (-1: NaN in the
model's output). 12 bytes; an image has few cells, even with many classes."""


class MeanIoU(RecordMetric):
    """Mean over the classes of intersection over union, 0 to 1, over all pixels of all images.

    A class's value is TP / (TP + FP + FN) in pixels (Everingham et al. 2015, "The PASCAL Visual Object Classes
    Challenge", 4.2). Classes that are neither in the targets nor in the predictions do not count, as in scikit-learn's
    ``jaccard_score(average="macro")`` of the labels that occur; torchvision's reference has NaN there. Pixels with a
    negative target are ignored. An image is a unit; merged records of several runs equal those of one run.

    Args:
        labels: the model's class names, in the order of its classes, for the figures of the classes.
    """

    name = "mIoU"

    def __init__(self, labels: Sequence[str] | None = None) -> None:
        self.labels = None if labels is None else tuple(labels)

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Count one batch.

        Args:
            predictions: per image the class of each pixel, H x W integers; -1 for no answer.
            targets: per image the ground truth, H x W integers; negative for unknown or ignored pixels.
            contexts: a ``truth`` of a context that is not ``None`` replaces the target.

        Returns:
            A record of :data:`RECORD` per pair of classes in an image, and the image's index.

        Raises:
            InputError: a prediction is not H x W integers, or has another size than its target.
        """
        known = [getattr(context, "truth", None) for context in contexts or [None] * len(targets)]
        found = [
            _cells(np.asarray(prediction), np.asarray(target if truth is None else truth))
            for prediction, target, truth in zip(predictions, targets, known, strict=True)
        ]
        owners = np.repeat(np.arange(len(found), dtype=np.int64), [len(cells) for cells in found])
        return Records(np.concatenate([np.empty(0, RECORD), *found]), owners)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean IoU; NaN if all weights are 0."""
        both, real, found = _totals(records, weights)
        return _mean(both, real + found - both)

    def secondary(self) -> Mapping[str, float]:
        """Return further figures over all pixels.

        ``pixel_accuracy``: right pixels over pixels. ``mean_accuracy``: mean over the target classes of the share of
        right pixels. ``dice``: mean of 2 TP / (2 TP + FP + FN), the F1 of the pixels, over the same classes as the mean
        IoU. ``fw_iou``: IoU weighted by the classes' shares of the target pixels.
        """
        kept = self._all()
        both, real, found = _totals(kept, np.ones(len(kept)))
        total = real.sum()
        return {
            "pixel_accuracy": float(both.sum() / total) if total else float("nan"),
            "mean_accuracy": _mean(both, real),
            "dice": _mean(2 * both, real + found),
            "fw_iou": float(real @ _shares(both, real + found - both) / total) if total else float("nan"),
        }

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return ``iou``, ``dice``, ``accuracy`` (of target pixels; NaN without any) and the number of target pixels.

        Classes that are neither in the targets nor in the predictions are omitted.
        """
        kept = self._all()
        both, real, found = _totals(kept, np.ones(len(kept)))
        columns = (both / np.maximum(real + found - both, 1), 2 * both / np.maximum(real + found, 1))
        accuracy = np.where(real > 0, both / np.maximum(real, 1), np.nan)
        names = ("iou", "dice", "accuracy")
        return {
            self._label(i): {
                **{name: float(column[i]) for name, column in zip(names, (*columns, accuracy), strict=True)},
                "pixels": int(real[i]),
            }
            for i in np.flatnonzero(real + found).tolist()
        }

    def confusion(self) -> Array:
        """Return the confusion matrix of all pixels, C x C int64: rows are targets, columns predictions.

        Pixels without an answer (NaN) are not in it.
        """
        kept = self._all()
        classes = max(len(self.labels or ()), _classes(kept))
        answered = kept[kept["found"] >= 0]
        matrix = np.zeros((classes, classes), np.int64)
        np.add.at(matrix, (answered["real"], answered["found"]), answered["pixels"].astype(np.int64))
        return matrix

    def _label(self, place: int) -> str:
        return str(place) if self.labels is None or place >= len(self.labels) else self.labels[place]


def _cells(prediction: Array, target: Array) -> Array:
    """Return the nonzero cells of one image's confusion matrix, in the matrix' order."""
    if prediction.ndim != 2 or prediction.dtype.kind not in "iu" or target.dtype.kind not in "iu":
        raise InputError(
            f"a prediction has shape {prediction.shape} and dtype {prediction.dtype}, its target dtype {target.dtype}; "
            "expected H x W integers for both"
        )
    if prediction.shape != target.shape:
        raise InputError(
            f"a prediction of {prediction.shape[1]}x{prediction.shape[0]} for a target of shape {target.shape}; "
            "resize the classes to the target's size"
        )
    counted = target >= 0
    real, found = target[counted].astype(np.int64), prediction[counted].astype(np.int64) + 1
    columns = int(found.max(initial=0)) + 1
    pairs, pixels = _counted(real * columns + found)
    cells = np.empty(len(pairs), RECORD)
    cells["real"], cells["found"], cells["pixels"] = pairs // columns, pairs % columns - 1, pixels
    return cells


def _counted(values: Array) -> tuple[Array, Array]:
    """Return the values that occur, increasing, and their counts; without sorting if all are small."""
    if values.max(initial=0) < 1 << 16:
        counts = np.bincount(values)
        places = np.flatnonzero(counts)
        return places, counts[places]
    return np.unique(values, return_counts=True)


def _classes(records: Array) -> int:
    return int(max(records["real"].max(initial=-1), records["found"].max(initial=-1))) + 1


def _totals(records: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return per class the right pixels, the target pixels and the predicted pixels, float64."""
    real, found, classes = records["real"], records["found"], _classes(records)
    pixels = records["pixels"] * weights  # integers below 2 ** 53 are exact, in any order
    right = real == found
    answered = found >= 0
    return (
        np.bincount(real[right], pixels[right], classes),
        np.bincount(real, pixels, classes),
        np.bincount(found[answered], pixels[answered], classes),
    )


def _shares(part: Array, whole: Array) -> Array:
    shares: Array = np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
    return shares


def _mean(part: Array, whole: Array) -> float:
    """Return the mean of the shares whose whole is not 0; NaN if there are none."""
    counts = whole > 0
    return float((part[counts] / whole[counts]).mean()) if counts.any() else float("nan")
