"""Metrics of a model with several outputs: one of record, the others for information."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from tecoinfer_modelzoo.text import shape_text
from utils.metrics.arrays.elements import KINDS, Cosine, ElementErrors, Equal, Psnr
from utils.metrics.arrays.positions import PositionF1, PositionTopK, class_rows
from utils.metrics.base import Metric, RecordMetric, Records, in_order_of_bytes
from utils.metrics.classification import TopK
from utils.metrics.f1 import MacroF1
from utils.metrics.gaps import Gaps
from utils.metrics.graph_labels import GraphLabels


class _Kind(NamedTuple):
    """A kind of metric: how its object is made from the options of a measure, and how it takes a batch."""

    make: Callable[[Mapping[str, Any]], Metric]
    given: Callable[[Sequence[Any], Sequence[Any], str], tuple[Any, Any]] = lambda found, wanted, name: (found, wanted)


def _class_vectors(found: Sequence[Any], wanted: Sequence[Any], name: str) -> tuple[Any, Any]:
    """Return scores N x C and N classes, from outputs whose only axis longer than 1 is that of the classes."""
    rows = [class_rows(_vector(one), _scalar(right), name) for one, right in zip(found, wanted, strict=True)]
    return np.concatenate([row for row, _ in rows]), np.concatenate([label for _, label in rows])


def _vector(array: Any) -> Array:
    given = np.asarray(array)
    return given.reshape(-1) if given.ndim and given.size == max(given.shape) else given


def _scalar(array: Any) -> Array:
    given = np.asarray(array)
    return given.reshape(()) if given.size == 1 else given


def _binary(found: Sequence[Any], wanted: Sequence[Any], name: str) -> tuple[Any, Any]:
    """Return the scores of T properties, and their values; two scores of one property are those of its two values."""
    scores, values = [], []
    for one, right in zip(found, wanted, strict=True):
        score, value = np.asarray(one, np.float64).ravel(), np.asarray(right, np.float64).ravel()
        if (score.size, value.size) == (2, 1):
            score = score[1:] - score[:1]
        if score.size != value.size:
            raise DataError(
                f"{name}: the output of a sample has shape {shape_text(np.shape(one))} and its expected array "
                f"{shape_text(np.shape(right))}; auc needs a value of 0 or 1 for each score, or one for two scores"
            )
        wrong = value[(value != 0) & (value != 1)]
        if len(wrong):
            raise DataError(
                f"{name}: expected value {wrong[0]:g} must be 0 or 1; correct the data, or use another metric"
            )
        scores.append(score)
        values.append(value)
    return scores, values


_KINDS = {
    **{kind: _Kind(lambda options: ElementErrors(options["kind"])) for kind in KINDS},
    "cosine": _Kind(lambda options: Cosine()),
    "psnr": _Kind(lambda options: Psnr(options["peak"])),
    "equal": _Kind(lambda options: Equal(options["tolerance"])),
    "topk": _Kind(lambda options: TopK(options["k"]), _class_vectors),
    "f1": _Kind(lambda options: MacroF1(), _class_vectors),
    "auc": _Kind(lambda options: GraphLabels("roc_auc"), _binary),
    "topk_of_positions": _Kind(lambda options: PositionTopK(options["k"])),
    "f1_of_positions": _Kind(lambda options: PositionF1()),
}


class OutputMetrics(RecordMetric):
    """The metric of one output, which is the one of record, and those of others, which are secondary.

    A prediction is a mapping of output names to arrays, and so is a target.

    Args:
        measures: the metric of record first. Each is a mapping with ``outputs`` (names; several only for ``equal``),
            ``kind`` (a key of the table in docs/reference/arrays.md, or ``topk_of_positions`` and ``f1_of_positions``),
            and the options ``k``, ``peak`` and ``tolerance`` of these kinds.
    """

    def __init__(self, measures: Sequence[Mapping[str, Any]]) -> None:
        unknown = next((one["kind"] for one in measures if one["kind"] not in _KINDS), None)
        if unknown is not None or not measures:
            raise ConfigError(f"metric {unknown!r} must be one of {', '.join(_KINDS)}")
        self.measures = [dict(one) for one in measures]
        self._first = self._made(0)
        self.name = self._label(0)
        self.higher_is_better = self._first.higher_is_better
        self.bounds = self._first.bounds
        self.has_margins = self._first.has_margins  # type: ignore[misc]  # as the metric of record has

    def _made(self, place: int) -> Metric:
        one = self.measures[place]
        return _KINDS[one["kind"]].make(one)

    def _label(self, place: int) -> str:
        """Return the name of a metric, after that of its output if there are several metrics."""
        name, outputs = self._made(place).name, self.measures[place]["outputs"]
        if len(self.measures) == 1 or len(outputs) > 1:
            return name
        return f"{re.sub(r'[^A-Za-z0-9]+', '_', outputs[0]).strip('_')}_{name}"

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return per sample the record of the only metric, or a field ``m0``, ``m1``, ... for each of several.

        Raises:
            DataError: predictions and targets do not fit (message with the names of sample and output; those of samples
                are the contexts).
        """
        found = [self._updated(place, predictions, targets, contexts) for place in range(len(self.measures))]
        values = [np.asarray(one.values) for one in found]
        margins = found[0].margins
        if len(values) == 1:
            return Records(values[0], margins=margins)
        rows = np.empty(len(targets), [(f"m{i}", one.dtype, one.shape[1:]) for i, one in enumerate(values)])
        for i, one in enumerate(values):
            rows[f"m{i}"] = one
        return Records(rows, margins=margins)

    def _updated(
        self, place: int, predictions: Any, targets: Sequence[Any] | Array, samples: Sequence[Any] | None
    ) -> Records:
        """Return the records of a batch for one metric; ``samples``: names of its samples."""
        measure, metric = self.measures[place], self._made(place)
        names, several = measure["outputs"], measure["kind"] == "equal"
        found, wanted = (
            [[one[name] for name in names] if several else one[names[0]] for one in column]
            for column in (predictions, targets)
        )
        try:
            record = metric.update(*_KINDS[measure["kind"]].given(found, wanted, metric.name))
        except (DataError, InputError) as error:
            if samples is not None and len(predictions) > 1:  # find the sample
                for one in range(len(predictions)):
                    self._updated(place, [predictions[one]], [targets[one]], [samples[one]])
            where = f"{samples[0]}: " if samples else ""
            raise DataError(f"{where}output {', '.join(map(repr, names))}: {error}") from error
        return record if isinstance(record, Records) else Records(record)

    def _part(self, records: Array, place: int) -> Array:
        """Return the records of one metric."""
        return records if len(self.measures) == 1 else np.ascontiguousarray(records[f"m{place}"])

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to the metric of record."""
        return self._first.weighing(self._part(records, 0))

    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of record."""
        return self.weighing(records)(weights)

    def compute(self) -> float:
        """Return the metric of record over all samples, as its own class computes it."""
        return self._filled(0).compute()

    def smoothed(self, records: Array) -> Callable[[Array], float] | None:
        """Return the variant without jumps of the metric of record."""
        return self._first.smoothed(self._part(records, 0))

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return the gaps of the metric of record."""
        return self._first.gaps(self._part(target, 0), self._part(baseline, 0), units)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the effect of the metric of record."""
        return self._first.effect(self._part(target, 0), self._part(baseline, 0))

    def unknown(self) -> str:
        """Return why the metric of record is NaN."""
        return self._filled(0).unknown()

    def _filled(self, place: int) -> Metric:
        """Return one metric with all records, in an order that does not depend on how they were added."""
        metric = self._made(place)
        metric.replay(self._part(in_order_of_bytes(self._all()), place))
        return metric

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures of the metric of record, and the metrics of other outputs with theirs."""
        found = dict(self._filled(0).secondary())
        for place in range(1, len(self.measures)):
            metric, label = self._filled(place), self._label(place)
            found[label] = metric.compute()
            prefix = label.removesuffix(metric.name)
            found |= {f"{prefix}{name}": value for name, value in metric.secondary().items()}
        return found

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of single classes of the metric of record."""
        return self._filled(0).per_class()
