"""What a run is judged by: a task's metric of its predictions, or a metric of raw outputs beside the baseline's."""

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
    """Some consecutive samples as a call takes them.

    Attributes:
        inputs: one array per input of the model; one without a batch is whole in every part.
        targets: what is right for each sample; ``None`` where that is not known.
        names: one per sample.
        units, contexts: as a :class:`~utils.datasets.base.Batch` and a task's ``prepare`` have them.
        shards: what each SPA gets, where a task lays that out; ``inputs`` is empty then.
    """

    inputs: list[Array]
    targets: Any
    names: list[str]
    units: list[str] | None = None
    contexts: list[Any] | None = None
    shards: Shards | None = None

    @property
    def fed(self) -> list[Array] | Shards:
        """What a task's ``infer`` takes."""
        return self.inputs if self.shards is None else self.shards


@dataclass(frozen=True)
class Outputs:
    """What a model returned for some samples: arrays whose rows are the samples."""

    arrays: Sequence[Array]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.arrays[0])


class Agree(MeanMetric):
    """Share of positions at which the best class is the baseline's, of the worst output; both are :class:`Outputs`.

    A dense output has a class per position: along the second axis of four and more, else along the last.
    """

    name = "agree"
    bounds = (0.0, 1.0)

    def records(self, predictions: Any, targets: Any, contexts: Sequence[Any] | None) -> Array:
        """Return one float64 per sample; 0 where shapes differ, as of outputs whose size follows from values."""
        same = []
        for ours, theirs in zip(predictions.arrays, targets.arrays, strict=True):
            if ours.shape != theirs.shape:
                return np.zeros(len(predictions))
            ours, theirs = (a[:, None] if a.ndim == 1 else a for a in (ours, theirs))
            axis = -1 if ours.ndim < 4 else 1
            right = (ours.argmax(axis) == theirs.argmax(axis)) & np.isfinite(ours).all(axis)
            same.append(right.reshape(len(right), -1).mean(axis=1))
        return np.asarray(np.min(same, axis=0), np.float64)


class Close(MeanMetric):
    """1 - sqrt(sum (a-b)^2 / sum b^2) of the worst output, from 0 to 1; 0 where NaN or Inf is in it."""

    name = "close"
    bounds = (0.0, 1.0)

    def records(self, predictions: Any, targets: Any, contexts: Sequence[Any] | None) -> Array:
        """Return one float64 per sample; 0 where shapes differ, as of outputs whose size follows from values."""
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
    """Return a metric of raw outputs by its name.

    Raises:
        ConfigError: there is none of this name.
    """
    from utils.metrics import TopK

    top = re.fullmatch(r"top([1-9]\d*)", name)
    if top:
        return TopK(int(top[1]))
    if name not in ("agree", "close"):
        raise ConfigError(f"unknown metric {name!r}; metrics: {METRICS}")
    return Agree() if name == "agree" else Close()


def needs_labels(name: str) -> bool:
    """Say whether a metric of raw outputs compares with labels."""
    return name.startswith("top")


class Measure(Protocol):
    """How runs over a data set are measured."""

    @property
    def name(self) -> str:
        """The metric's name."""
        ...

    @property
    def raw(self) -> bool:
        """Whether the outputs are compared as they are, also with the baseline's, which are kept for that."""
        ...

    def make(self) -> Metric:
        """Return the metric, which has seen nothing."""
        ...

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Take in the outputs for a part, beside the baseline's where ``raw``, and return the records."""
        ...


@dataclass(frozen=True)
class RawMeasure:
    """A metric of a model's outputs as they are, one row per sample.

    Attributes:
        name: of the metric (:func:`metric_named`).
        axes: for each output the axis of its samples; ``None`` in it, or an empty list, is the first.
        folders: set where targets number class folders.
    """

    name: str
    axes: Sequence[int | None] = ()
    raw: bool = True
    folders: ClassFolders | None = None

    def make(self) -> Metric:
        """Return the metric, which has seen nothing."""
        found = metric_named(self.name)
        if self.folders is not None and needs_labels(self.name):
            found.folders = self.folders  # type: ignore[attr-defined]
        return found

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Take in the outputs for a part and return the records.

        Raises:
            DataError: an output does not hold one row of numbers per sample, or labels are missing.
        """
        rows = [self._rows(array, i) for i, array in enumerate(_listed(ours))]
        check_rows(rows, len(part.names))
        if not needs_labels(self.name):
            right: Any = Outputs([self._rows(array, i) for i, array in enumerate(_listed(theirs))])
            return metric.update(Outputs(rows), right)
        if part.targets is None:
            raise DataError(f"{self.name} needs labels, and the data set has none; use --metric agree or close")
        labels: Any = np.asarray(part.targets)
        return metric.update(rows[0].reshape(len(rows[0]), -1), labels)

    def _rows(self, array: Array, place: int) -> Array:
        axis = self.axes[place] if place < len(self.axes) else None
        return np.moveaxis(array, axis, 0) if axis and array.ndim > axis else array


def _listed(outputs: Any) -> Any:
    return [outputs] if isinstance(outputs, np.ndarray) else outputs


@dataclass(frozen=True)
class TaskMeasure:
    """A task's own metric of its own predictions.

    Attributes:
        make: returns the metric, which has seen nothing.
        decode: from outputs and contexts to predictions.
        name: of the metric.
        needs: what the data must be, for the message where it has no targets.
    """

    make: Callable[[], Metric]
    decode: Callable[[Any, Any], Any]
    name: str
    needs: str
    raw: bool = False

    def update(self, metric: Metric, part: Feed, ours: Any, theirs: Any) -> Array | Records:
        """Decode the outputs for a part, take in the predictions and return the records.

        Raises:
            DataError: samples have no targets, or there is not one prediction for each.
        """
        if part.targets is None:
            raise DataError(
                f"{part.names[0]} has no target; pass data with targets ({self.needs}), or --metric agree or close"
            )
        predictions = self.decode(ours, part.contexts)
        if isinstance(predictions, (list, tuple)) and len(predictions) != len(part.names):
            raise DataError(f"decode gave {len(predictions)} answers for {len(part.names)} samples; give one each")
        return metric.update(predictions, part.targets, part.contexts)


def check_rows(outputs: Sequence[Array], samples: int) -> None:
    """Raise where outputs do not hold one row of numbers per sample, which every metric of raw outputs compares.

    Raises:
        DataError: such an output.
    """
    for i, array in enumerate(outputs):
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"output {i} holds {array.dtype}, no numbers; no metric compares it, cut the model before it"
            )
        if array.ndim == 0 or len(array) != samples:
            raise DataError(
                f"output {i} has shape {list(array.shape)} for {samples} samples; metrics compare sample by sample; "
                "cut the model before it"
            )
