"""How well the properties of whole graphs are told: the area under the ROC curve, and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric
from utils.metrics.roc import Ordered, area, in_order, roc_curve

KINDS = ("roc_auc", "accuracy")
"""What may be the metric of record."""

RECORD = np.dtype([("score", np.float64), ("same", np.bool_), ("known", np.bool_)])
"""A probability, whether the property is there (as :mod:`utils.metrics.roc` calls it), and whether that is known."""


class GraphLabels(RecordMetric):
    """Yes or no, for one property or several, some of which may be unknown.

    - ``roc_auc``: the area under the ROC curve of each property, over the samples where it is known; the mean over the
      properties of which both kinds are there (as OGB's evaluators take it).
    - ``accuracy``: the share of all known properties whose probability is on the right side of one half.

    Args:
        primary: one of :data:`KINDS`; the other is shown beside it. names: of the properties.
        scored: ``False``: predictions are labels, of which there is no ROC curve.

    Raises:
        ConfigError: it is none of these.
    """

    bounds = None

    def __init__(self, primary: str = "roc_auc", names: Sequence[str] = (), scored: bool = True) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} is none of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self.names, self._kinds = tuple(names), KINDS if scored else ("accuracy",)

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return T records of :data:`RECORD` per sample.

        Args:
            predictions: per sample T probabilities. targets: per sample T of 0 or 1, NaN where one is not known.
            contexts: not used.

        Raises:
            InputError: the numbers of values differ. DataError: a target is none of these.
        """
        found = []
        for one, right in zip(predictions, targets, strict=True):
            scores, known = np.atleast_1d(np.asarray(one, np.float64)), np.atleast_1d(np.asarray(right, np.float64))
            if scores.shape != known.shape:
                raise InputError(
                    f"{self.name}: {len(scores)} probabilities came with {len(known)} targets; name as many"
                )
            wrong = known[~np.isnan(known) & (known != 0) & (known != 1)]
            if len(wrong):
                raise DataError(f"{self.name}: target {wrong[0]:g} is neither 0 nor 1; correct the data, or say --kind")
            row = np.zeros(len(scores), RECORD)
            row["score"], row["same"], row["known"] = scores, known == 1, ~np.isnan(known)
            found.append(row)
        return np.stack(found) if found else np.zeros((0, 1), RECORD)

    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of record."""
        return self.weighing(records)(weights)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted once."""
        if self.primary == "accuracy":
            right = (records["score"] >= 0.5) == records["same"]
            right &= ~np.isnan(records["score"])
            known = records["known"]
            return lambda weights: _share(weights[:, None] * known, right)
        columns = [_column(records[:, place]) for place in range(records.shape[1])]
        return lambda weights: _mean([_area(order, weights[places]) for places, order in columns])

    def unknown(self) -> str:
        """Return why there is no value."""
        if self.primary == "roc_auc":
            return "no property has both kinds among the samples; take --metric accuracy, or add samples"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other figure, where there is one."""
        kept = self._all()
        others = (kind for kind in self._kinds if kind != self.primary)
        return {other: GraphLabels(other).value(kept, np.ones(len(kept))) for other in others}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each property, where there are several."""
        kept = self._all()
        count = kept.shape[1]
        if count < 2:
            return {}
        names = self.names if len(self.names) == count else tuple(f"target {place}" for place in range(count))
        ones = np.ones(len(kept))
        return {
            name: {kind: GraphLabels(kind).value(kept[:, [place]], ones) for kind in self._kinds}
            | {"samples": float(kept["known"][:, place].sum())}
            for place, name in enumerate(names)
        }


class GraphClasses(RecordMetric):
    """The one class of a graph, out of several.

    - ``accuracy``: the share of samples whose class has the highest probability; one with NaN is wrong.
    - ``roc_auc``: of two classes, the area under the ROC curve of the second one's probability.

    Args:
        primary: one of :data:`KINDS`; the other is shown beside it where there are two classes.
        scored: ``False``: predictions are labels, of which there is no ROC curve.

    Raises:
        ConfigError: it is none of these.
    """

    def __init__(self, primary: str = "accuracy", scored: bool = True) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} is none of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self._scored = scored

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record per sample: whether it is right, the second class's probability, and whether that is right.

        Args:
            predictions: per sample C probabilities. targets: per sample the number of its class.
            contexts: not used.

        Raises:
            DataError: a target is no class of the model.
        """
        found = np.zeros(len(targets), [("right", np.bool_), ("score", np.float64), ("same", np.bool_)])
        for row, one, given in zip(found, predictions, targets, strict=True):
            scores, place = np.asarray(one, np.float64), float(np.ravel(given)[0])
            if np.size(given) != 1 or not place.is_integer() or not 0 <= place < len(scores):
                raise DataError(f"{self.name}: target {given} is no class of 0 to {len(scores) - 1}; correct the data")
            two = len(scores) == 2
            right = not np.isnan(scores).any() and int(np.argmax(scores)) == place
            row["right"], row["score"], row["same"] = right, scores[1] if two else np.nan, two and place == 1
        return found

    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of record."""
        if self.primary == "accuracy":
            return _share(weights, records["right"])
        return _area(in_order(records), weights) if not np.isnan(records["score"]).all() else math.nan

    def unknown(self) -> str:
        """Return why there is no value."""
        return "roc_auc needs two classes, and samples of both; take --metric accuracy, or add samples"

    def secondary(self) -> Mapping[str, float]:
        """Return the other figure of two classes."""
        kept = self._all()
        if not self._scored or np.isnan(kept["score"]).all():
            return {}
        other = next(kind for kind in KINDS if kind != self.primary)
        return {other: GraphClasses(other).value(kept, np.ones(len(kept)))}


def _column(records: Array) -> tuple[Array, Ordered]:
    places = np.flatnonzero(records["known"])
    return places, in_order(records[places])


def _area(order: Ordered, weights: Array) -> float:
    return area(roc_curve(order, weights)) if len(weights) else math.nan


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _share(weights: Array, right: Array) -> float:
    total = float(weights.sum())
    return float((weights * right).sum()) / total if total else math.nan
