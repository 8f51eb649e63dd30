"""Metrics of classification: accuracy, macro F1 and Matthews' correlation, from one kind of record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, InputError
from tecoinfer_modelzoo.text import shown_value
from utils.metrics.base import RecordMetric, Records, weighted_share
from utils.metrics.class_names import WrongLabelError, hint
from utils.metrics.classification import margins

RECORD = np.dtype([("label", np.int32), ("predicted", np.int32), ("right", np.bool_)])
"""A sample: its label, its prediction (-1 for a NaN score), and whether its label is among the best ``k``."""

MOST_FLIPS = 2000
"""Largest number of changed predictions whose effect on a metric is computed."""

RATED_RECORD = np.dtype([*RECORD.descr, ("score", np.float64), ("rating", np.float64)])
"""The same, with the mean class by the scores, and the rating by people."""


class Labelled(RecordMetric):
    """Base of :class:`Accuracy`, :class:`MacroF1` and :class:`Matthews`.

    The margin of a sample is the gap between its two best classes.

    Args:
        k: number of highest scores for accuracy.
        labels: the model's class names, in the order of its scores; targets may then be names.
        rated: targets have a ``label`` and a ``rating`` by people. Spearman's correlation of the ratings with the mean
            class, weighted by the scores, is a secondary figure.
        neutral: with ``rated``, also compute the accuracy without ratings closer to 0 than this; 0: do not.
        other: one of ``labels``, for names of classes that are not among them; ``None``: such a name is an error.
    """

    has_margins: ClassVar[bool] = True

    def __init__(
        self,
        k: int = 1,
        labels: Sequence[str] | None = None,
        rated: bool = False,
        neutral: float = 0.0,
        other: str | None = None,
    ) -> None:
        if not isinstance(k, int) or k < 1:
            raise ConfigError(f"top-k: k={k!r} must be an integer of at least 1")
        self.k = k
        self.labels = None if labels is None else tuple(labels)
        self.rated, self.neutral, self.other = rated, neutral, other

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a record of :data:`RECORD` per sample, of :data:`RATED_RECORD` with ``rated``, and their margins.

        Args:
            predictions: scores, N x C real numbers.
            targets: N classes: a name among the labels, or a number from 0 to C - 1, also as text.

        Raises:
            InputError: scores that are not N x C real numbers, or not as many as targets.
            DataError: a target is not a class of the model.
        """
        scores = np.asarray(predictions)
        if scores.ndim != 2 or scores.dtype.kind not in "fiu" or len(scores) != len(targets):
            raise InputError(
                f"scores of shape {scores.shape} and dtype {scores.dtype} for {len(targets)} labels; "
                f"{self.name} needs a row of real numbers per label"
            )
        given = [target.label for target in targets] if self.rated else targets
        labels = self._places(given, scores.shape[1])
        own = np.take_along_axis(scores, labels[:, None], axis=1)
        later = np.arange(scores.shape[1]) > labels[:, None]
        ahead = ((scores > own) | ((scores == own) & later)).sum(axis=1)
        lost = np.isnan(scores).any(axis=1)
        found = np.empty(len(labels), RATED_RECORD if self.rated else RECORD)
        found["label"], found["right"] = labels, (ahead < self.k) & ~lost
        # of equal scores the higher class ranks first, as above
        found["predicted"] = scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1) if len(labels) else -1
        found["predicted"][lost] = -1
        if self.rated:
            found["score"] = scores.astype(np.float64) @ np.arange(scores.shape[1])
            found["rating"] = [target.rating for target in targets]
        return Records(found, margins=self._margins(scores, found))

    def _margins(self, scores: Array, found: Array) -> Array:
        return np.abs(margins(scores, np.maximum(found["predicted"], 0)))

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the largest relative change of the value by one changed prediction, times the samples.

        NaN if there are more than :data:`MOST_FLIPS` kinds of changes.
        """
        classes = np.unique([baseline["label"], baseline["predicted"]])
        cells, counts = np.unique(baseline[["label", "predicted"]], return_counts=True)
        if len(cells) * len(classes) > MOST_FLIPS:
            return math.nan
        rows = np.zeros(len(cells) * len(classes), RECORD)
        rows["label"], rows["predicted"] = np.repeat(cells["label"], len(classes)), np.tile(classes, len(cells))
        rows["right"] = rows["label"] == rows["predicted"]
        weights = np.zeros(len(rows))
        own = np.arange(len(cells)) * len(classes) + np.searchsorted(classes, cells["predicted"])
        weights[own] = counts
        value = self.value(rows, weights)
        changes = []
        for place in np.flatnonzero(weights):
            for other in range(place // len(classes) * len(classes), (place // len(classes) + 1) * len(classes)):
                moved = weights.copy()
                moved[place], moved[other] = moved[place] - 1, moved[other] + 1
                changes.append(abs(self.value(rows, moved) - value))
        return len(baseline) * max(changes) / abs(value) if value else math.nan

    def _of_ratings(self) -> dict[str, float]:
        """Return the figures that use ratings; empty without ratings."""
        if not self.rated:
            return {}
        from utils.metrics.correlation import Correlation

        kept = self._all()
        found = {"spearman": Correlation("spearman").value(kept, np.ones(len(kept)))}
        if self.neutral:
            clear = kept[np.abs(kept["rating"]) >= self.neutral]
            found[f"top{self.k}_not_neutral"] = _accuracy(clear, np.ones(len(clear)))
            found["not_neutral"] = float(len(clear))
        return found

    def secondary(self) -> Mapping[str, float]:
        """Return ``top1`` (or another ``k``), ``macro_f1``, ``matthews`` and rating figures, except the primary."""
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {f"top{self.k}": _accuracy, "macro_f1": _macro_f1, "matthews": _matthews}
        found = {name: figure(kept, ones) for name, figure in figures.items() if name != self.name}
        return found | self._of_ratings()

    def _places(self, targets: Sequence[Any] | Array, classes: int) -> Array:
        """Return the targets' classes, int64."""
        known = {name: place for place, name in enumerate(self.labels or ())}
        found = np.empty(len(targets), np.int64)
        for place, target in enumerate(targets):
            number = self._place(target, known, place)
            if not 0 <= number < classes:
                raise WrongLabelError(
                    f"label {shown_value(number)} is not a class of the model, which has {classes} (0 to "
                    f"{classes - 1}); check that the data set matches the model",
                    place,
                )
            found[place] = number
        return found

    def _place(self, target: Any, known: Mapping[str, int], place: int) -> int:
        """Return a target's class.

        If any of the model's labels is a number (``1 star`` to ``5 stars`` stored as ``1`` to ``5``), numbers are
        labels, as integer or text; otherwise they are class indices.
        """
        number = isinstance(target, (int, np.integer))
        text = str(int(target)) if number else target
        if text in known:
            return known[text]
        digits = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10
        if (number or digits) and not any(name.lstrip("-").isdecimal() for name in known):
            return int(text)
        if self.other is not None and not number:
            return known[self.other]
        names = hint(str(target)[:100], self.labels) if self.labels else " (the model stores no names)"
        raise WrongLabelError(
            f"label {shown_value(target)} is not a class of the model{names}; correct the data set, or write class "
            "numbers",
            place,
        )


class Accuracy(Labelled):
    """Share of samples, 0 to 1, whose class is among the ``k`` highest scores, ranked as in :class:`TopK`."""

    bounds = (0.0, 1.0)

    def __init__(
        self,
        k: int = 1,
        labels: Sequence[str] | None = None,
        rated: bool = False,
        neutral: float = 0.0,
        other: str | None = None,
    ) -> None:
        super().__init__(k, labels, rated, neutral, other)
        self.name = f"top{k}"

    def _margins(self, scores: Array, found: Array) -> Array:
        return margins(scores, found["label"], self.k)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted share of right samples; NaN if all weights are 0."""
        return _accuracy(records, weights)


class MacroF1(Labelled):
    """Mean of the classes' F1 scores, 0 to 1, with equal weights of the classes.

    A class's F1 is 2 TP / (2 TP + FP + FN). Classes that are neither a label nor a prediction of any sample do not
    count, as in scikit-learn's ``f1_score(average="macro")``.
    """

    name = "macro_f1"

    def value(self, records: Array, weights: Array) -> float:
        """Return weighted macro F1; NaN if all weights are 0."""
        return _macro_f1(records, weights)


class Matthews(Labelled):
    """Matthews' correlation of labels and predictions, -1 to 1; 0 is chance level (CoLA's metric).

    For more than two classes it is Gorodkin's R_K (2004): the covariance of the two, as 0 and 1 per class, over the
    root of the product of their variances. 0 if all labels, or all predictions, are of one class, as in scikit-learn's
    ``matthews_corrcoef``. A prediction of NaN is an additional class.
    """

    name = "matthews"

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted correlation; NaN if all weights are 0."""
        return _matthews(records, weights)


def _accuracy(records: Array, weights: Array) -> float:
    return weighted_share(records["right"], weights)


def _macro_f1(records: Array, weights: Array) -> float:
    counted = weights > 0
    labels, predicted, weights = records["label"][counted], records["predicted"][counted], weights[counted]
    classes = int(max(labels.max(initial=-1), predicted.max(initial=-1))) + 1
    real = np.bincount(labels, weights, classes)
    known = predicted >= 0
    found = np.bincount(predicted[known], weights[known], classes)
    hits = labels == predicted
    both = np.bincount(labels[hits], weights[hits], classes)
    present = real + found > 0
    return float((2 * both[present] / (real + found)[present]).mean()) if present.any() else float("nan")


def _matthews(records: Array, weights: Array) -> float:
    total = float(weights.sum())
    if not total:
        return float("nan")
    labels, predicted = records["label"] + 1, records["predicted"] + 1  # NaN is 0
    classes = int(max(labels.max(), predicted.max())) + 1
    real, found = np.bincount(labels, weights, classes), np.bincount(predicted, weights, classes)
    hits = float(weights[labels == predicted].sum())
    spread = (total**2 - float(found @ found)) * (total**2 - float(real @ real))
    return (hits * total - float(real @ found)) / spread**0.5 if spread > 0 else 0.0
