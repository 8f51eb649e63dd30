"""What an evaluation keeps of one finished step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine import Array
from utils.metrics.base import Metric, Records
from utils.pipeline.run.prepare import Failure


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What is kept of one finished step.

    Attributes:
        size: samples in the batch, those that failed too.
        record: what the metric's ``update`` returned: an array with one entry per sample that made it, or records of
            them; ``None`` where none did.
        good: positions in the batch of the samples that made it, rising; ``None`` where all did.
        failures: the samples that could not be run.
        nan_inputs, nan_outputs: names of the samples whose input, or whose output, held NaN.
        counts: what the task counted of the batch, by name.
    """

    size: int
    record: Array | Records | None
    good: tuple[int, ...] | None = None
    failures: tuple[Failure, ...] = ()
    nan_inputs: tuple[str, ...] = ()
    nan_outputs: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples that made it."""
        if self.record is None:
            return 0
        return self.size if self.good is None else len(self.good)


def foreign(step: Step, names: Sequence[str], metric: Metric) -> str:
    """Return why a kept step cannot be of the batch with these names, measured by this metric; empty where it can."""
    if step.size != len(names):
        return f"it has {step.size} samples, and the batch {len(names)}"
    said = {*(failure.name for failure in step.failures), *step.nan_inputs, *step.nan_outputs} - set(names)
    if said:
        return f"{min(said)!r} is no sample of the batch"
    if len(step.failures) < step.size - step.samples:
        return f"{step.size - step.samples} of its samples are missing, {len(step.failures)} with a reason"
    values = step.record.values if isinstance(step.record, Records) else step.record
    if values is None or metric.bounds is None or values.dtype.kind not in "biuf" or not values.size:
        return ""
    low, high = metric.bounds
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if known.size and not (low <= known.min() and known.max() <= high):
        return f"a record lies outside {low:g} to {high:g}, the bounds of {metric.name}"
    return ""
