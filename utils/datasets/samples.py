"""The core of every data set: samples in a fixed order, handed out in lazy batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.base import Array, ConfigError
from utils.datasets.table import Labels, Sample, SampleTable

__all__ = ["Batch", "Batches", "Dataset", "Labels", "Rejected", "Sample"]


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
    """A sequence of samples in a fixed order, held compactly: about 20 bytes and the file name for each.

    Args:
        samples: the samples; either all of them have a label or none has.
        classes: class names by class index, where they are known.
        rejected: files that cannot be samples, for the report at the end of a run.
        rows: array whose row ``i`` is the content of ``samples[i]``; ``None`` for pictures.

    Attributes:
        labels: int64 of shape N, or ``None`` where the samples have none.

    Raises:
        ConfigError: some samples have a label and some have none.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        *,
        classes: list[str] | None = None,
        rejected: Iterable[Rejected] = (),
        rows: Array | None = None,
    ) -> None:
        self.samples = samples if isinstance(samples, SampleTable) else SampleTable.of(samples)
        self.classes = classes
        self.rejected = list(rejected)
        self.rows = rows
        self.labels: Labels | None = self.samples.labels

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

    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, of what there is to run: it changes when a sample, a label or a file changes.

        It covers, in order, the samples' paths below the innermost folder that holds all of them (a data set that is
        moved as a whole keeps its fingerprint), their labels, and every file's size and time of modification, or the
        content of the rows of an ``.npz`` file. Pictures are not read, so a change that keeps size and time is not
        seen, and a copy that does not keep the times counts as another data set. A file that is gone counts as changed.

        The cost is one ``stat`` per picture: about 5 us where the folder is in the page cache, and on a cold disk or a
        network file system what a ``stat`` takes there; for rows about a second per GB.
        """
        from utils.datasets.fingerprint import fingerprint

        return fingerprint(self.samples, self.rows)


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
        names = self.dataset.samples.names(part)
        labels, rows = self.dataset.labels, self.dataset.rows
        return Batch(
            samples=list(map(Path, names)) if rows is None else list(rows[part]),
            labels=None if labels is None else labels[part],
            names=names,
        )
