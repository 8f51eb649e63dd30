"""The contract of a data set: samples of any kind in a fixed order, handed out in lazy batches."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from engine import Array, ConfigError
from tecoinfer_modelzoo.files import read_regular


class Rejected(NamedTuple):
    """A file that was found, or asked for, but cannot be a sample; ``reason`` is part of a sentence for the report."""

    path: Path
    reason: str


class Batch(NamedTuple):
    """Some samples of a data set.

    Attributes:
        samples: one object per sample: a path, an array row, a text, a pair, whatever the task's ``prepare`` takes.
        targets: what is right for each (a label, boxes, a transcript, a float), or ``None`` where that is not known.
        names: one readable name per sample, for reports and file names.
        units: for each the name of what is independent of the rest: a person, a query, a video. ``None``: every sample
            is a unit of its own.
    """

    samples: Sequence[Any]
    targets: Sequence[Any] | Array | None
    names: list[str]
    units: list[str] | None = None


def pick(values: Any, places: Sequence[int]) -> Any:
    """Return the entries of a list or an array at some places; ``None`` stays ``None``."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return values[np.asarray(places, np.intp)]
    return [values[i] for i in places]


class Dataset(ABC):
    """A sequence of samples in a fixed order. A new kind writes ``__len__``, :meth:`batch` and :meth:`fingerprint`.

    Attributes:
        rejected: files that cannot be samples, for the report at the end of a run.
        has_units: whether several samples may belong to one unit, so that batches name units.
        notes: what holds for all samples and is known from the data, such as class names; a selection has them too.
    """

    rejected: Sequence[Rejected] = ()
    has_units: bool = False
    notes: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at some places, in that order; ``places`` is a ``range`` where they follow each other."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, of what there is to run: it changes when a sample, a target or a file changes."""

    def batches(self, batch_size: int) -> Batches:
        """Return the data set as batches; nothing is read or decoded here.

        Raises:
            ConfigError: ``batch_size`` is not a whole number of at least 1.
        """
        return Batches(self, batch_size)

    def select(self, indices: Sequence[int]) -> Dataset:
        """Return the samples at some places as a data set; its ``rejected`` is empty.

        Calibration, ``teco fix``, and the parts of several processes are made by this.
        """
        return Selection(self, indices)

    def watched(self) -> set[str]:
        """Return files and folders whose time of change tells that samples were added or listed anew.

        They are looked at when a journalled run ends; the path given by the user is always looked at.
        """
        return set()


class Selection(Dataset):
    """Some samples of another data set."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self._dataset, self._indices = dataset, indices
        self.rejected = []
        self.has_units, self.notes = dataset.has_units, dataset.notes

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at some places of the selection."""
        if isinstance(places, range) and isinstance(self._indices, range):
            return self._dataset.batch(self._indices[places.start : places.stop : places.step])
        return self._dataset.batch([self._indices[i] for i in places])

    def fingerprint(self) -> str:
        """Return a hash of the whole data set's fingerprint and of what was selected."""
        from hashlib import sha256

        return sha256(f"{self._dataset.fingerprint()} {','.join(map(str, self._indices))}".encode()).hexdigest()

    def watched(self) -> set[str]:
        """Return what the whole data set watches."""
        return self._dataset.watched()


class ListDataset(Dataset):
    """Samples of any kind held in memory.

    Args:
        samples: one object per sample.
        targets: one per sample, or ``None``.
        names: one per sample; ``None`` numbers them.
        units: one name per sample, or ``None`` where every sample is a unit of its own.
        files: what the samples were read from; the fingerprint covers their content.
        rejected: files that cannot be samples.
        notes: what holds for all samples.

    Raises:
        ConfigError: the lists have different lengths.
    """

    def __init__(
        self,
        samples: Sequence[Any],
        targets: Sequence[Any] | None = None,
        *,
        names: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
        files: Iterable[str | os.PathLike[str]] = (),
        rejected: Iterable[Rejected] = (),
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        self.samples, self.targets = samples, targets
        self.names = [str(i) for i in range(len(samples))] if names is None else list(names)
        self.units = None if units is None else list(units)
        self.files = [Path(file) for file in files]
        self.rejected = list(rejected)
        self.has_units = units is not None
        self.notes = dict(notes or {})
        for what, values in (("targets", targets), ("names", self.names), ("units", units)):
            if values is not None and len(values) != len(samples):
                raise ConfigError(f"{len(values)} {what} for {len(samples)} samples; give one per sample")

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at some places."""
        units = None if self.units is None else pick(self.units, places)
        return Batch(pick(self.samples, places), pick(self.targets, places), pick(self.names, places), units)

    def fingerprint(self) -> str:
        """Return a hash of names, units and the content of the files; without files, of samples and targets as text."""
        from hashlib import sha256

        digest = sha256(repr((self.names, self.units)).encode("utf-8", "surrogatepass"))
        for file in self.files:
            try:
                digest.update(sha256(read_regular(file)).digest())
            except OSError:
                digest.update(b"gone")
        if not self.files:
            for values in (self.samples, self.targets or ()):
                for value in values:
                    digest.update(_content(value))
        return digest.hexdigest()

    def watched(self) -> set[str]:
        """Return the files the samples were read from."""
        return {str(file) for file in self.files}


def _content(value: Any) -> bytes:
    """Return bytes that change with a value: those of arrays, the text of all else."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, dict):
        return b"".join(_content(key) + _content(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(map(_content, value)) + b")"
    return repr(value).encode("utf-8", "surrogatepass")


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
        total = len(self.dataset)
        for start in range(0, total, self.batch_size):
            yield self.dataset.batch(range(start, min(start + self.batch_size, total)))


@runtime_checkable
class OfDataset(Protocol):
    """Batches that say which data set they are of, as :class:`Batches` do."""

    @property
    def dataset(self) -> Dataset:
        """What a run calibrates from, and whose rejected files it reports."""


def dataset_of(batches: Iterable[Batch]) -> Dataset | None:
    """Return the data set that batches are of; ``None`` where they do not say."""
    return batches.dataset if isinstance(batches, OfDataset) else None
