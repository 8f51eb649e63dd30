"""The core of every data set: samples in a fixed order, handed out in lazy batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.base import Array, ConfigError

Labels = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing to run: a picture file, or a row of an ``.npz`` file (then ``path`` reads ``file.npz[row]``)."""

    path: Path
    label: int | None


class Rejected(NamedTuple):
    """A file that was found, or asked for, but cannot be a sample; ``reason`` is part of a sentence for the report."""

    path: Path
    reason: str


class Batch(NamedTuple):
    """Some consecutive samples.

    Attributes:
        samples: picture paths, or the array rows of an ``.npz`` file.
        labels: int64 of shape N, or ``None`` where the data set has no labels.
        names: one readable name per sample, for reports and file names.
    """

    samples: list[Path] | list[Array]
    labels: Labels | None
    names: list[str]


class Dataset:
    """A sequence of samples in a fixed order.

    Args:
        samples: the samples; either all of them have a label or none has.
        classes: class names by class index, where they are known.
        rejected: files that cannot be samples, for the report at the end of a run.
        rows: array whose row ``i`` is the content of ``samples[i]``; ``None`` for pictures.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        classes: list[str] | None = None,
        rejected: Iterable[Rejected] = (),
        rows: Array | None = None,
    ) -> None:
        self.samples = list(samples)
        self.classes = classes
        self.rejected = list(rejected)
        self.rows = rows
        self.labels: Labels | None = None
        labels = [sample.label for sample in self.samples if sample.label is not None]
        if labels:
            self.labels = np.array(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def batches(self, batch_size: int) -> Batches:
        """Return the data set as batches; nothing is read or decoded here.

        Raises:
            ConfigError: ``batch_size`` is not a whole number of at least 1.
        """
        return Batches(self, batch_size)


class Batches:
    """The batches of a data set, in order; the last one is short, not dropped.

    It can be iterated any number of times, and ``len()`` is the number of steps.
    """

    def __init__(self, dataset: Dataset, batch_size: int) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")
        self.dataset = dataset
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.dataset), self.batch_size):
            yield self._batch(slice(start, start + self.batch_size))

    def _batch(self, part: slice) -> Batch:
        paths = [sample.path for sample in self.dataset.samples[part]]
        labels, rows = self.dataset.labels, self.dataset.rows
        return Batch(
            samples=paths if rows is None else list(rows[part]),
            labels=None if labels is None else labels[part],
            names=[str(path) for path in paths],
        )
