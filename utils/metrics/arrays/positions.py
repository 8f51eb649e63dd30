"""Metrics of classes per position: tokens of a text, pixels, points. Scores have one axis more than the classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import shape_text
from utils.metrics.base import RecordMetric, Records
from utils.metrics.classification import TopK


def class_rows(scores: Any, labels: Any, name: str) -> tuple[Array, Array]:
    """Return the scores of a sample as rows of positions, [P, C], and its classes, int64 [P].

    Args:
        scores: the classes along the last axis, or else along the first one: [..., C] or [C, ...].
        labels: one class per position, of the shape of ``scores`` without the axis of the classes. Positions with a
            negative class are left out, if a sample has several.
        name: of the metric, for messages.

    Raises:
        DataError: the shapes do not fit, or the classes are not integers.
    """
    found, classes = np.asarray(scores), np.asarray(labels)
    classes = classes[()] if classes.shape == (1,) and found.ndim == 1 else classes
    if classes.dtype.kind not in "iu":
        raise DataError(f"{name}: expected classes have dtype {classes.dtype}; give integers, .astype(np.int64)")
    if found.ndim and found.shape[:-1] == classes.shape:
        rows = found
    elif found.ndim and found.shape[1:] == classes.shape:
        rows = np.moveaxis(found, 0, -1)
    else:
        raise DataError(
            f"{name}: the output of a sample has shape {shape_text(found.shape)} and its classes "
            f"{shape_text(classes.shape)}; the output needs one more axis, the scores of the classes"
            + ("; use --metric equal for an output of classes" if found.shape == classes.shape else "")
        )
    rows, known = rows.reshape(-1, rows.shape[-1]), np.asarray(classes, np.int64).reshape(-1)
    return (rows[known >= 0], known[known >= 0]) if classes.ndim else (rows, known)


class PositionTopK(RecordMetric):
    """Share of positions, 0 to 1, whose class is among the ``k`` highest scores, ranked as in :class:`TopK`.

    The margin of a sample is the smallest of its positions. A sample is a unit.

    Args:
        k: number of highest scores, at least 1.
    """

    has_margins: ClassVar[bool] = True
    bounds = (0.0, 1.0)

    def __init__(self, k: int = 1) -> None:
        self.k, self.name = k, TopK(k).name

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return the right positions and the positions of each sample, int64 [N, 2], with margins.

        Raises:
            DataError: shapes do not fit (:func:`class_rows`), or a class is not one of the model's.
        """
        rows, margins = np.zeros((len(targets), 2), np.int64), np.full(len(targets), math.inf)
        for place, (scores, labels) in enumerate(zip(predictions, targets, strict=True)):
            found = TopK(self.k).update(*class_rows(scores, labels, self.name))
            rows[place] = np.count_nonzero(found.values), len(found.values)
            if found.margins is not None and len(found.margins):
                margins[place] = found.margins[np.argmin(np.abs(found.margins))]
        return Records(rows, margins=margins)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted share of right positions; NaN without positions."""
        right, count = weights @ records
        return float(right / count) if count else math.nan


class PositionF1(RecordMetric):
    """Mean of the classes' F1 scores over all positions, 0 to 1, as :class:`~utils.metrics.f1.MacroF1`.

    It equals scikit-learn's ``f1_score(average="macro")`` of the flattened classes.
    """

    name = "macro_f1"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return per sample and class the right positions, the predicted ones and the expected ones, int64 [N, 3, C].

        Raises:
            DataError: shapes do not fit (:func:`class_rows`), or a class is not one of the model's.
        """
        return np.array(
            [_counts(*class_rows(*pair, self.name)) for pair in zip(predictions, targets, strict=True)], np.int64
        )

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean F1; NaN if no class occurs."""
        right, found, real = np.tensordot(weights, records, 1)
        counted = found + real > 0
        return float((2 * right[counted] / (found + real)[counted]).mean()) if counted.any() else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return ``top1``, the share of right positions."""
        totals = self._all().sum(axis=(0, 2))
        return {"top1": float(totals[0] / totals[2])} if totals[2] else {}


def _counts(scores: Array, labels: Array) -> Array:
    """Return the counts of :meth:`PositionF1.records` for one sample."""
    classes = scores.shape[1]
    TopK().update(scores, labels)  # raises for a class that the model does not have
    found = classes - 1 - np.argmax(scores[:, ::-1], axis=1)  # of equal scores the higher class, as TopK ranks
    answered = ~np.isnan(scores).any(axis=1)
    hits = labels[answered & (found == labels)]
    return np.stack([np.bincount(each, minlength=classes) for each in (hits, found[answered], labels)])
