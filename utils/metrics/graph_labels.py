"""Metrics of properties of whole graphs: the area under the ROC curve, and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric, Records, WeighingMetric
from utils.metrics.classification import margins
from utils.metrics.gaps import Gaps, of_classes, of_threshold
from utils.metrics.roc import Ordered, area, in_order, roc_curve

KINDS = ("roc_auc", "accuracy")
"""Allowed primary metrics."""

RECORD = np.dtype([("score", np.float64), ("same", np.bool_), ("known", np.bool_)])
"""A probability, the property's value (named as in :mod:`utils.metrics.roc`), and whether it is known."""


class GraphLabels(WeighingMetric):
    """Binary properties, one or several, some of which may be unknown.

    - ``roc_auc``: the area under the ROC curve of each property over the samples with a known value; the mean over the
      properties with both values (as in OGB's evaluators).
    - ``accuracy``: the share of all known properties whose probability is on the right side of one half.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the other is a secondary figure.
        names: of the properties.
        scored: ``False``: predictions are labels, without a ROC curve.
    """

    def __init__(self, primary: str = "roc_auc", names: Sequence[str] = (), scored: bool = True) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self.names, self._kinds = tuple(names), KINDS if scored else ("accuracy",)

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return T records of :data:`RECORD` per sample.

        Args:
            predictions: per sample T probabilities.
            targets: per sample T of 0 or 1, NaN if unknown.

        Raises:
            InputError: the numbers of values differ.
            DataError: a target has another value.
        """
        found = []
        for one, right in zip(predictions, targets, strict=True):
            scores, known = np.atleast_1d(np.asarray(one, np.float64)), np.atleast_1d(np.asarray(right, np.float64))
            if scores.shape != known.shape:
                raise InputError(f"{self.name}: {len(scores)} probabilities for {len(known)} targets; use as many")
            wrong = known[~np.isnan(known) & (known != 0) & (known != 1)]
            if len(wrong):
                raise DataError(f"{self.name}: target {wrong[0]:g} must be 0 or 1; correct the data, or set --kind")
            row = np.zeros(len(scores), RECORD)
            row["score"], row["same"], row["known"] = scores, known == 1, ~np.isnan(known)
            found.append(row)
        return np.stack(found) if found else np.zeros((0, 1), RECORD)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted once."""
        if self.primary == "accuracy":
            right = (records["score"] >= 0.5) == records["same"]
            right &= ~np.isnan(records["score"])
            known = records["known"]
            return lambda weights: _share(weights[:, None] * known, right)
        columns = [_column(records[:, place]) for place in range(records.shape[1])]
        return lambda weights: _mean([_area(order, weights[places]) for places, order in columns])

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return the distances of all probabilities from one half; for a single property's area its pairs' gaps."""
        if len(self._kinds) == 1:  # labels, which have no margins
            return None
        known = baseline["known"]
        ours, theirs, same = target["score"][known], baseline["score"][known], baseline["same"][known]
        units, places = np.broadcast_to(units[:, None], known.shape)[known], np.nonzero(known)[0]
        if self.primary == "accuracy":
            return of_threshold(ours, theirs, 0.5, units, places)
        found = of_classes(ours, theirs, same, units) if known.shape[1] == 1 else None
        return found and replace(found, places=places[found.places])

    def effect(self, target: Array, baseline: Array) -> float:
        """Return 1 over the value, a share of probabilities or of pairs."""
        return 1 / (self.value(baseline, np.ones(len(baseline))) or math.nan)

    def unknown(self) -> str:
        """Return why the value is NaN."""
        if self.primary == "roc_auc":
            return "no property has both values among the samples; use --metric accuracy, or add samples"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other figure, if there is one."""
        kept = self._all()
        others = (kind for kind in self._kinds if kind != self.primary)
        return {other: GraphLabels(other).value(kept, np.ones(len(kept))) for other in others}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each property, if there are several."""
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
    """The class of a graph.

    - ``accuracy``: the share of samples whose class has the highest probability; samples with NaN are wrong.
    - ``roc_auc``: for two classes, the area under the ROC curve of the second one's probability.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the other is a secondary figure for two classes.
        scored: ``False``: predictions are labels, without a ROC curve.
    """

    has_margins: ClassVar[bool] = True

    def __init__(self, primary: str = "accuracy", scored: bool = True) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        self.name = self.primary = primary
        self.bounds = (0.0, 1.0) if primary == "accuracy" else None
        self._scored = scored

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a record per sample: whether it is right, the second class's probability, and whether it is true.

        Args:
            predictions: per sample C probabilities.
            targets: per sample the number of its class.

        Raises:
            DataError: a target is not a class of the model.
        """
        found = np.zeros(len(targets), [("right", np.bool_), ("score", np.float64), ("same", np.bool_)])
        gaps: list[float] = []
        for row, one, given in zip(found, predictions, targets, strict=True):
            scores, place = np.asarray(one, np.float64), float(np.ravel(given)[0])
            if np.size(given) != 1 or not place.is_integer() or not 0 <= place < len(scores):
                raise DataError(f"{self.name}: target {given} must be a class from 0 to {len(scores) - 1}; correct it")
            two = len(scores) == 2
            right = not np.isnan(scores).any() and int(np.argmax(scores)) == place
            row["right"], row["score"], row["same"] = right, scores[1] if two else np.nan, two and place == 1
            gaps.append(margins(scores[None], np.array([int(place)]))[0] if self._scored else math.nan)
        return Records(found, margins=np.array(gaps, np.float64))

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return for the area under the curve the gaps between both classes."""
        if self.primary == "accuracy":  # their own margins
            return None
        return of_classes(target["score"], baseline["score"], baseline["same"], units)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return 1 over the value."""
        return 1 / (self.value(baseline, np.ones(len(baseline))) or math.nan)

    def value(self, records: Array, weights: Array) -> float:
        """Return the primary metric."""
        if self.primary == "accuracy":
            return _share(weights, records["right"])
        return _area(in_order(records), weights) if not np.isnan(records["score"]).all() else math.nan

    def unknown(self) -> str:
        """Return why the value is NaN."""
        return "roc_auc needs two classes, and samples of both; use --metric accuracy, or add samples"

    def secondary(self) -> Mapping[str, float]:
        """Return the other figure for two classes."""
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
