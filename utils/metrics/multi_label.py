"""Metrics of samples that may have several classes: mean average precision and mean area under the ROC curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import Records, WeighingMetric, mean_or_nan
from utils.metrics.class_names import WrongLabelError, hint

SEPARATORS = ",;"
"""Between the classes of a target that is one text."""


class MeanAveragePrecision(WeighingMetric):
    """Mean over the classes of their average precision, 0 to 1; classes without a sample are left out.

    The average precision of a class is the sum, over the distinct scores from the highest down, of the precision there
    times the increase of the recall, as in scikit-learn's ``average_precision_score``; AudioSet's mAP is its mean.

    Args:
        labels: the classes in the order of the scores; ``None``: targets are numbers.
    """

    name = "map"
    bounds = (0.0, 1.0)

    def __init__(self, labels: Sequence[str] | None = None) -> None:
        self.labels = None if labels is None else tuple(labels)

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a row per sample, N x 2C float32: the scores, and 1 for each of the sample's classes.

        Args:
            predictions: scores, N x C real numbers.
            targets: per sample its classes: a list of names or numbers, or one text with commas or semicolons between
                them; an empty list for none.

        Raises:
            InputError: scores that are not N x C real numbers. DataError: a target is not a class of the model.
            ConfigError: the number of labels is not that of classes.
        """
        scores = np.asarray(predictions)
        if scores.ndim != 2 or scores.dtype.kind not in "fiu":
            raise InputError(
                f"scores of shape {scores.shape} and dtype {scores.dtype}; {self.name} needs N x C real numbers"
            )
        if self.labels is not None and len(self.labels) != scores.shape[1]:
            raise ConfigError(f"{self.name}: {len(self.labels)} labels for scores of {scores.shape[1]} classes")
        known = {name: place for place, name in enumerate(self.labels or ())}
        found = np.zeros((len(scores), 2 * scores.shape[1]), np.float32)
        found[:, : scores.shape[1]] = scores
        for place, target in enumerate(targets):
            for one in _classes(target, known):
                found[place, scores.shape[1] + self._place(one, known, scores.shape[1], place)] = 1
        return Records(found)

    def _place(self, target: Any, known: Mapping[str, int], classes: int, place: int) -> int:
        text = str(target).strip()
        if text in known:
            return known[text]
        if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < classes:
            return int(text)
        names = hint(text[:100], self.labels) if self.labels else f" (0 to {classes - 1})"
        raise WrongLabelError(
            f"label {text[:100]!r} is not a class of the model{names}; correct the data set, or write class numbers",
            place,
        )

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to the mean average precision."""
        curves = _curves(records)
        return lambda weights: _mean([curve.precision(weights) for curve in curves])

    def secondary(self) -> Mapping[str, float]:
        """Return ``mean_auc``, the mean area under the ROC curve, and the number of classes that have samples."""
        curves = _curves(self._all())
        weights = np.ones(len(self._all()))
        areas = [curve.area(weights) for curve in curves]
        return {"mean_auc": _mean(areas), "classes": float(sum(not math.isnan(one) for one in areas))}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return average precision, area and number of samples of each class."""
        kept = self._all()
        weights = np.ones(len(kept))
        return {
            (self.labels[place] if self.labels else str(place)): {
                "ap": curve.precision(weights),
                "auc": curve.area(weights),
                "samples": float(curve.positive.sum()),
            }
            for place, curve in enumerate(_curves(kept))
        }


def _classes(target: Any, known: Mapping[str, int]) -> Sequence[Any]:
    if isinstance(target, (list, tuple, np.ndarray)):
        return list(target)
    if not isinstance(target, str) or target in known:
        return [target]
    for separator in SEPARATORS[1:]:
        target = target.replace(separator, SEPARATORS[0])
    return [one for one in target.split(SEPARATORS[0]) if one.strip()]


class _Curve:
    """The samples of a class by falling score; NaN counts as the worst score for the class, the best against it."""

    def __init__(self, scores: Array, positive: Array) -> None:
        own = np.where(np.isnan(scores), np.where(positive, -np.inf, np.inf), scores)
        self.order = np.argsort(-own, kind="stable")
        falling = own[self.order]
        self.ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        self.positive = positive[self.order]

    def _counts(self, weights: Array) -> tuple[Array, Array]:
        own = weights[self.order]
        right = np.cumsum(np.where(self.positive, own, 0.0))[self.ends]
        return right, np.cumsum(own)[self.ends] - right

    def precision(self, weights: Array) -> float:
        """Return the average precision; NaN without a sample of the class."""
        right, wrong = self._counts(weights)
        if not len(right) or not right[-1]:
            return math.nan
        gained = np.diff(right, prepend=0.0)
        some = gained > 0
        return float((gained[some] * right[some] / (right + wrong)[some]).sum() / right[-1])

    def area(self, weights: Array) -> float:
        """Return the area under the ROC curve; NaN without samples of the class, or of others."""
        right, wrong = (np.concatenate([[0.0], one]) for one in self._counts(weights))
        if not right[-1] or not wrong[-1]:
            return math.nan
        return float((np.diff(wrong) * (right[1:] + right[:-1])).sum() / 2 / (right[-1] * wrong[-1]))


def _curves(records: Array) -> list[_Curve]:
    classes = records.shape[1] // 2
    return [_Curve(records[:, place].astype(np.float64), records[:, classes + place] > 0) for place in range(classes)]


def _mean(values: Sequence[float]) -> float:
    return mean_or_nan([one for one in values if not math.isnan(one)])
