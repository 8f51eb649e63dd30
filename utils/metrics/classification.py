"""Metrics of image classification."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import Metric, Records

if TYPE_CHECKING:
    from typing_extensions import Self

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]


class ClassFolders:
    """Class folders of a data set, whose order may differ from that of a model's outputs.

    Args:
        names: of the folders, in the order of the labels.
        labels, class_ids: labels and WordNet ids stored in the model.
    """

    def __init__(
        self, names: Sequence[str], labels: Sequence[str] | None = None, class_ids: Sequence[str] | None = None
    ) -> None:
        self.names, self.labels, self.class_ids = names, labels, class_ids
        self._outputs: dict[int, Counts] = {}

    def outputs(self, count: int) -> Counts:
        """Return the output of each folder, for a model with ``count`` outputs.

        Raises DataError if the mapping is unknown.
        """
        if count not in self._outputs:
            from utils.datasets.sharding import rank_and_size
            from utils.metrics.class_names import decided_outputs

            self._outputs[count], line = decided_outputs(self.names, count, self.labels, self.class_ids)
            if line and rank_and_size()[0] == 0:
                warnings.warn(line, stacklevel=2)
        return self._outputs[count]


class TopK(Metric):
    """Share of samples, 0 to 1, whose label is among the ``k`` highest scores.

    Of equal scores the higher class index ranks first, as in scikit-learn's ``top_k_accuracy_score`` (multiclass), with
    which the result agrees exactly. (``np.argmax`` takes the lower index.) Infinities rank like other numbers; a sample
    with a NaN in its scores is wrong for any ``k``.

    Args:
        k: number of highest scores, at least 1; with ``k`` of at least the number of classes every sample without NaN
            is right.

    Attributes:
        folders: set if targets number class folders instead of the model's outputs.
    """

    per_sample: ClassVar[bool] = True
    has_margins: ClassVar[bool] = True
    bounds = (0.0, 1.0)

    def __init__(self, k: int = 1) -> None:
        if not isinstance(k, int) or k < 1:
            raise ConfigError(f"top-k: k={k!r} must be an integer of at least 1")
        self.k = k
        self.name = f"top{k}"
        self.folders: ClassFolders | None = None
        self.correct = 0
        self.total = 0

    def update(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Add one batch.

        Args:
            predictions: scores of shape N x C, any real dtype; N may be 0.
            targets: N class indices, an array of an integer dtype or a list.

        Returns:
            N booleans, true for right samples, and their margins (:func:`margins`).

        Raises:
            InputError: scores that are not N x C real numbers, or not as many as labels.
            DataError: labels that are not integers from 0 to C - 1.
        """
        scores, labels = np.asarray(predictions), np.asarray(targets)
        if self.folders is not None and scores.ndim == 2 and labels.size:
            labels = self.folders.outputs(scores.shape[1])[labels]
        _check(scores, labels)
        right = _rank(scores, labels.astype(np.int64)) < self.k
        right &= ~np.isnan(scores).any(axis=1)
        record = Records(right, margins=margins(scores, labels, self.k))
        self.replay(record)
        return record

    def replay(self, record: Array | Records) -> None:
        """Add a batch by its record, N booleans."""
        record = record.values if isinstance(record, Records) else record
        if record.dtype != np.bool_ or record.ndim != 1:
            raise InputError(
                f"{self.name}: a record of dtype {record.dtype} and shape {record.shape} must be N booleans; "
                "pass a result of update()"
            )
        self.correct += int(np.count_nonzero(record))
        self.total += len(record)

    def merge(self, other: Self) -> None:
        """Add the counts of another metric with the same ``k``."""
        if not isinstance(other, TopK) or other.k != self.k:
            raise ConfigError(f"cannot merge {other.name} into {self.name}; merge metrics with the same k")
        self.correct += other.correct
        self.total += other.total

    def compute(self) -> float:
        """Return right samples over samples."""
        if not self.total:
            raise DataError(f"{self.name}: no samples were evaluated, so the accuracy is undefined; check the data set")
        return self.correct / self.total

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted share of right samples; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(weights[records.astype(bool, copy=False)].sum()) / total if total else math.nan


def margins(scores: Array, labels: Array, k: int = 1) -> Array:
    """Return how far each sample is from becoming right or wrong: the label's score minus the k-th best other score.

    Args:
        scores: N x C. labels: N class indices. k: how many of the highest scores count.

    Returns:
        N float64 in the unit of the scores, negative for wrong samples; infinite where ``k`` is at least C; NaN for
        rows with NaN, 0 for equal infinities.
    """
    values = scores.astype(np.float64)
    lost = np.isnan(values).any(axis=1)
    if k >= scores.shape[1]:
        return np.where(lost, math.nan, math.inf)
    place = labels.astype(np.int64)[:, None]
    own = np.take_along_axis(values, place, axis=1)[:, 0]
    np.put_along_axis(values, place, -math.inf, axis=1)
    other = np.partition(values, -k, axis=1)[:, -k]
    with np.errstate(invalid="ignore"):
        gaps = np.where(own == other, 0.0, own - other)
    return np.where(lost, math.nan, gaps)


def check_topk(k: int, classes: int, model: object) -> None:
    """Raise if every sample would be right for any scores, because there are at most ``k`` classes.

    Args:
        k: if 1, nothing is raised.
        classes: number of classes.
        model: its file, for the message.

    Raises:
        ConfigError: there are not more than ``k`` classes.
    """
    if k >= classes and k > 1:
        most = f"use 1 to {classes - 1}" if classes > 2 else "use 1"
        raise ConfigError(f"--topk {k}: {model} has {classes} classes, so every sample would be right; {most}")


def _rank(scores: Array, labels: Array) -> Counts:
    """Return the number of classes that rank before each label: with a higher score, or equal and a higher index."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    later = np.arange(scores.shape[1]) > labels[:, None]
    ahead: Counts = ((scores > own) | ((scores == own) & later)).sum(axis=1, dtype=np.int64)
    return ahead


def _check(scores: Array, labels: Array) -> None:
    if scores.ndim != 2 or scores.dtype.kind not in "fiu":
        raise InputError(f"scores have shape {scores.shape} and dtype {scores.dtype}; top-k needs N x C real numbers")
    if labels.ndim != 1 or len(labels) != len(scores):
        raise InputError(f"{len(scores)} rows of scores for labels of shape {labels.shape}; pass one label per row")
    if not labels.size:
        return
    if labels.dtype.kind not in "iu":
        raise DataError(f"labels have dtype {labels.dtype}; pass class indices, labels.astype(np.int64)")
    classes = scores.shape[1]
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise DataError(
            f"label {wrong[0]} is not a class of the model, which has {classes} (0 to {classes - 1}); "
            "check that the data set matches the model"
        )
