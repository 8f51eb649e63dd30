"""Measures of a run: the task's metric of its predictions, or a metric of raw outputs compared with the baseline's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from engine import Array, ConfigError, DataError
from utils.metrics.base import MeanMetric, Metric, Records

if TYPE_CHECKING:
    from utils.metrics.classification import ClassFolders
    from utils.tasks.prepared import Shards

METRICS = "top1 (any topK; needs labels), agree (the baseline's best class), close (1 - relative L2 error)"


class Feed(NamedTuple):
    """Consecutive samples prepared for one call.

    Attributes:
        inputs: one array per input of the model; an array without a batch axis is the same in every part.
        targets: expected value of each sample, if known. names: one per sample.
        units, contexts: as of :class:`~utils.datasets.base.Batch` and of a task's ``prepare``.
        shards: inputs of each SPA, if the task splits the batch; ``inputs`` is empty then.
    """

    inputs: list[Array]
    targets: Any
    names: list[str]
    units: list[str] | None = None
    contexts: list[Any] | None = None
    shards: Shards | None = None

    @property
    def fed(self) -> list[Array] | Shards:
        """Argument of a task's ``infer``."""
        return self.inputs if self.shards is None else self.shards


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model: arrays with a row per sample."""

    arrays: Sequence[Array]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.arrays[0])


class Agree(MeanMetric):
    """Share of positions with the baseline's best class, for the worst output (:class:`Outputs`)."""

    name = "agree"
    bounds = (0.0, 1.0)

    def records(self, predictions: Any, targets: Any, contexts: Sequence[Any] | None) -> Array:
        """Return one float64 per sample; 0 if shapes differ."""
        same = []
        for ours, theirs in zip(predictions.arrays, targets.arrays, strict=True):
            if ours.shape != theirs.shape:
                return np.zeros(len(predictions))
            ours, theirs = (a[:, None] if a.ndim == 1 else a for a in (ours, theirs))
            axis = -1 if ours.ndim < 4 else 1  # of the classes
            right = (ours.argmax(axis) == theirs.argmax(axis)) & np.isfinite(ours).all(axis)
            same.append(right.reshape(len(right), -1).mean(axis=1))
        return np.asarray(np.min(same, axis=0), np.float64)


class Close(MeanMetric):
    """1 - sqrt(sum (a-b)^2 / sum b^2) of the worst output, from 0 to 1; 0 if it contains NaN or Inf."""

    name = "close"
    bounds = (0.0, 1.0)

    def records(self, predictions: Any, targets: Any, contexts: Sequence[Any] | None) -> Array:
        """Return one float64 per sample; 0 if shapes differ."""
        worst = np.ones(len(predictions))
        for ours, theirs in zip(predictions.arrays, targets.arrays, strict=True):
            if ours.shape != theirs.shape:
                return np.zeros(len(predictions))
            a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (ours, theirs))
            with np.errstate(invalid="ignore", over="ignore"):
                error, size = np.sqrt(((a - b) ** 2).sum(axis=1)), np.sqrt((b**2).sum(axis=1))
                relative = error / np.where(size > 0, size, 1.0)
            worst = np.minimum(worst, 1.0 - np.clip(np.nan_to_num(relative, nan=1.0, posinf=1.0), 0.0, 1.0))
        return worst


def metric_named(name: str) -> Metric:
    """Return a metric of raw outputs by its name; raise ConfigError if it is unknown."""
    from utils.metrics import TopK

    top = re.fullmatch(r"top([1-9]\d*)", name)
    if top:
        return TopK(int(top[1]))
    if name not in ("agree", "close"):
        raise ConfigError(f"unknown metric {name!r}; metrics: {METRICS}")
    return Agree() if name == "agree" else Close()


def needs_labels(name: str) -> bool:
    """Return whether a metric of raw outputs needs labels."""
    return name.startswith("top")


class Measure(Protocol):
    """Measure of a run over a data set."""

    @property
    def name(self) -> str:
        """Name of the metric."""
        ...

    @property
    def raw(self) -> bool:
        """Whether raw outputs are compared with those of the baseline, which are kept then."""
        ...

    def make(self) -> Metric:
        """Return a new metric."""
        ...

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Update the metric with the outputs of a part, and the baseline's if ``raw``; return the records."""
        ...


@dataclass(frozen=True)
class RawMeasure:
    """Metric of raw outputs, one row per sample.

    Attributes:
        name: of the metric (:func:`metric_named`).
        axes: sample axis of each output; ``None``, or an empty list, is the first.
        folders: class folders, if the targets are indices of class folders.
    """

    name: str
    axes: Sequence[int | None] = ()
    raw: bool = True
    folders: ClassFolders | None = None

    def make(self) -> Metric:
        """Return a new metric."""
        found = metric_named(self.name)
        if self.folders is not None and needs_labels(self.name):
            found.folders = self.folders  # type: ignore[attr-defined]
        return found

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Update the metric with the outputs of a part and return the records.

        Raises DataError if an output has not one row of numbers per sample, or labels are missing.
        """
        rows = [self._rows(array, i) for i, array in enumerate(listed(ours))]
        check_rows(rows, len(part.names))
        if not needs_labels(self.name):
            right: Any = Outputs([self._rows(array, i) for i, array in enumerate(listed(theirs))])
            return metric.update(Outputs(rows), right)
        if part.targets is None:
            raise DataError(f"{self.name} needs labels, but the data has none; use --metric agree or close")
        labels: Any = np.asarray(part.targets)
        return metric.update(rows[0].reshape(len(rows[0]), -1), labels)

    def _rows(self, array: Array, place: int) -> Array:
        axis = self.axes[place] if place < len(self.axes) else None
        return np.moveaxis(array, axis, 0) if axis and array.ndim > axis else array


def listed(outputs: Any) -> Any:
    """Return a single array as a list of one."""
    return [outputs] if isinstance(outputs, np.ndarray) else outputs


@dataclass(frozen=True)
class TaskMeasure:
    """Metric of a task's predictions.

    Attributes:
        make: returns a new metric. decode: function from outputs and contexts to predictions.
        name: of the metric. needs: description of valid data, for the error message.
    """

    make: Callable[[], Metric]
    decode: Callable[[Any, Any], Any]
    name: str
    needs: str
    raw: bool = False

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Decode the outputs of a part, update the metric and return the records.

        Raises DataError if samples have no targets, or the number of predictions differs from that of samples.
        """
        if part.targets is None:
            fix = f"pass data with targets ({self.needs}), or --metric agree or close"
            raise DataError(f"{part.names[0]} has no target; {fix}")
        predictions = self.decode(ours, part.contexts)
        if isinstance(predictions, (list, tuple)) and len(predictions) != len(part.names):
            fix = "expected one each"
            raise DataError(f"decode returned {len(predictions)} answers for {len(part.names)} samples; {fix}")
        return metric.update(predictions, part.targets, part.contexts)


def check_rows(outputs: Sequence[Array], samples: int) -> None:
    """Raise DataError if an output has not one row of numbers per sample, as metrics of raw outputs need."""
    for i, array in enumerate(outputs):
        what = ""
        if array.dtype.kind not in "fiub":
            what = f"dtype {array.dtype}, not numbers"
        elif array.ndim == 0 or len(array) != samples:
            what = f"shape {list(array.shape)}, not one row for each of {samples} samples"
        if what:
            raise DataError(f"output {i} has {what}; metrics cannot compare it, cut the model before it")
