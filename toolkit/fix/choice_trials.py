"""Trials of other values of a task's export settings: preparation, model, decoding and measure, on some samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine
from engine.batching import fits
from model_config.judge.bound import values_of
from toolkit.fix.columns import Columns, joined, paired
from toolkit.fix.records import Feed, Measure, RawMeasure, listed
from toolkit.fix.samples import cast_to
from toolkit.fix.task_samples import TaskSamples
from toolkit.fix.trials import BROKEN
from utils.metrics.base import MeanMetric, Metric, Records
from utils.tasks.base import ExportSetting

Values = Mapping[str, Any]
"""Values of settings by key; absent settings are unchanged."""

DRAWS = 200
"""Number of bootstrap resamples of the significance test."""

GAIN = 5e-4
"""Smallest useful improvement, as a share of the reference."""

SAME = 1e-4
"""Largest difference from the source's values that is due to other kernels."""

KEPT = 2
"""Number of preparations whose outputs are kept for trials of the decoding."""


class Agreement(MeanMetric):
    """Agreement of final answers with those of the source framework, per sample."""

    name, bounds = "agreement", (0.0, 1.0)

    def __init__(self, agreement: Callable[[Any, Any], float]) -> None:
        self.agreement = agreement

    def records(self, predictions: Any, targets: Any, contexts: Sequence[Any] | None) -> Array:
        """Return one number per sample; NaN if the source has no answer."""
        pairs = zip(predictions, targets, strict=True)
        return np.array([math.nan if right is None else self.agreement(one, right) for one, right in pairs])

    def value(self, records: Array, weights: Array) -> float:
        """Return the mean over the samples with an answer."""
        known = ~np.isnan(records)
        return super().value(records[known], weights[known])


@dataclass(frozen=True)
class Goal:
    """Measure of the trials.

    Attributes:
        measure: makes the metric, and compares arrays for the views ``inputs`` and ``outputs``.
        view: compared values: ``inputs`` of the model, its ``outputs``, or decoded ``answers``.
        right: expected values per sample, or arrays with a row per sample; ``None``: targets of the data set.
        reference: value to reach. tolerance: relative difference that still counts as reached.
    """

    measure: Measure
    view: str
    right: Sequence[Any] | None
    reference: float
    tolerance: float = 0.01

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose settings affect the view."""
        return ("decode", "prepare") if self.view == "answers" else ("prepare",)

    def reached(self, value: float) -> bool:
        """Return whether a value reaches the reference within the tolerance."""
        short = self.reference - value if self.measure.make().higher_is_better else value - self.reference
        return short <= self.tolerance * abs(self.reference)


class Tried(NamedTuple):
    """Result of a trial.

    Attributes:
        values: of settings. value: the measure, NaN if the model or the decoding failed.
        columns: its records. task_metric: the task's metric, if it is measured too.
    """

    values: dict[str, Any]
    value: float
    columns: Columns | None
    task_metric: float = math.nan


@dataclass
class Bench:
    """Trials of settings on some samples of a task.

    Attributes:
        samples: of the task. engine: the model in float32. goal: the measure.
        choices: settings of the task. places: indices of the samples.
        task_metric: makes the task's metric, to be measured too; optional.
        runs: number of runs of the model. tries: number of trials.
    """

    samples: TaskSamples
    engine: Engine
    goal: Goal
    choices: Sequence[ExportSetting]
    places: Sequence[int]
    task_metric: Callable[[], Metric] | None = None
    runs: int = 0
    tries: int = 0
    _kept: dict[tuple[Any, ...], list[tuple[Feed, list[int], Any]]] = field(default_factory=dict)

    @property
    def metric(self) -> Metric:
        """A new metric."""
        return self.goal.measure.make()

    def now(self, choice: ExportSetting) -> Any:
        """Return the current value of a setting, from flags and metadata."""
        return choice.now(self.samples.model, self.samples.opt)

    def tried(self, values: Values, keep: bool = True) -> Tried:
        """Run a trial of values of settings; ``keep``: keep the outputs for trials of the decoding."""
        self.tries += 1
        metric, found = self.metric, list[tuple[Feed, Any]]()
        own = None if self.task_metric is None else self.task_metric()
        try:
            with np.errstate(all="ignore"):
                for part, places, outputs in self._outputs(values, keep):
                    found.append((part, self._record(metric, own, part, places, outputs, values)))
                columns = joined(found)
                value = float(metric.value(columns.values, np.ones(len(columns))))
        except ConfigError:
            raise
        except BROKEN:
            return Tried(dict(values), math.nan, None)
        return Tried(dict(values), value, columns, math.nan if own is None else own.compute())

    def is_better(self, one: Tried, other: Tried) -> bool:
        """Return whether a trial is significantly better, by a bootstrap (95 %); values equal to the source's need
        none.
        """
        if one.columns is None or other.columns is None:
            return other.columns is None and one.columns is not None
        gain = abs(one.value - other.value)
        if gain < GAIN * abs(self.goal.reference):
            return False
        if self.goal.right is not None and one.value > 1 - SAME:
            return one.value > other.value
        metric = self.metric
        pairs = paired(one.columns, other.columns, metric.name)
        both, rng = values_of(pairs, metric), np.random.default_rng(0)
        shares = np.full(pairs.total, 1 / max(1, pairs.total))
        draws = [both(rng.multinomial(pairs.total, shares).astype(np.float64)) for _ in range(DRAWS)]
        gains = np.array([ours - theirs for ours, theirs in draws])
        gains = gains[np.isfinite(gains)] * (1 if metric.higher_is_better else -1)
        return gains.size > DRAWS // 2 and float(np.quantile(gains, 0.025)) > 0

    def _record(
        self, metric: Metric, own: Metric | None, part: Feed, places: Sequence[int], outputs: Any, values: Values
    ) -> Array | Records:
        goal = self.goal
        if goal.view != "answers":
            assert goal.right is not None  # noqa: S101 - a goal on arrays has arrays
            return goal.measure.update(metric, part, outputs, [array[list(places)] for array in goal.right])
        predictions = self.samples.varied(values).task.decode(outputs, part.contexts)
        if own is not None:
            own.update(predictions, part.targets, part.contexts)
        targets = part.targets if goal.right is None else [goal.right[place] for place in places]
        return metric.update(predictions, targets, part.contexts)

    def _outputs(self, values: Values, keep: bool) -> Iterator[tuple[Feed, list[int], Any]]:
        """Yield parts, the indices of their samples, and the values to compare or to decode."""
        before = {choice.key for choice in self.choices if choice.stage == "prepare"}
        key = tuple(sorted((name, repr(value)) for name, value in values.items() if name in before))
        if key in self._kept:
            yield from self._kept[key]
            return
        found = []
        for one in self._computed({name: value for name, value in values.items() if name in before}):
            if keep:
                found.append(one)
            yield one
        if keep:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]

    def _computed(self, values: Values) -> Iterator[tuple[Feed, list[int], Any]]:
        self.runs += self.goal.view != "inputs"
        if not self.samples.one_call:
            yield from self.samples.varied(values).answered(self.engine, self.places)
            return
        for first, part, good in self.samples.varied(values).some(self.places):
            fed = cast_to(part.inputs, self.engine.inputs)
            places = [self.places[first + i] for i in good]
            if self.goal.view == "inputs":
                yield part, places, fed
                continue
            if not all(fits(array.shape, spec) for spec, array in zip(self.engine.inputs, fed, strict=True)):
                raise ValueError("the inputs do not fit the model")
            outputs = self.engine(fed)
            yield part._replace(inputs=[]), places, listed(outputs) if self.goal.view == "outputs" else outputs


def raw_goal(names: Sequence[str], arrays: Mapping[str, Array], outputs: Sequence[str], metric: str) -> Goal:
    """Return the goal for arrays of the source model: its inputs if all are present, else its outputs.

    ``names``: of the model's inputs; ``outputs``: names of its outputs; ``metric``: name of a metric of raw outputs.
    """
    if set(names) <= set(arrays):
        return Goal(RawMeasure(metric), "inputs", [arrays[name] for name in names], 1.0)
    right = [arrays[name] for name in outputs] if set(outputs) <= set(arrays) else list(arrays.values())
    return Goal(RawMeasure(metric), "outputs", right, 1.0)
