"""Base classes of data sets: samples of any kind in a fixed order, in lazy batches."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.errors import warn_renamed
from tecoinfer_modelzoo.files import read_regular
from utils.video.names import is_frame

Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""The numbers of samples, int64 of shape N."""


class Rejected(NamedTuple):
    """A file that cannot be a sample; the report prints ``reason`` as part of a sentence."""

    path: Path
    reason: str


class Batch(NamedTuple):
    """Some samples of a data set.

    Attributes:
        samples: one object per sample: a path, an array row, a text, a pair or another input of the task's ``prepare``.
        targets: the ground truth of each (a label, boxes, a transcript, a float), or ``None`` if unknown.
        names: one readable name per sample, for reports and file names.
        units: per sample the name of its independent unit (a person, a query, a video); ``None``: each sample is one.
    """

    samples: Sequence[Any]
    targets: Sequence[Any] | Array | None
    names: list[str]
    units: list[str] | None = None


def check_exists(*paths: Path) -> None:
    """Raise DataError for the first data path that does not exist."""
    for path in paths:
        if not path.exists() and not is_frame(path.name):
            raise DataError(f"data path {path} does not exist; check the path")


def pick(values: Any, places: Sequence[int]) -> Any:
    """Return the entries of a list or an array at the given places; ``None`` stays ``None``."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return values[np.asarray(places, np.intp)]
    return [values[i] for i in places]


def root_of(parents: Any, item: Any) -> Any:
    """Return the root of an item in a union-find forest (item -> parent), and halve the path to it."""
    while parents[item] != item:
        parents[item] = parents[parents[item]]
        item = parents[item]
    return item


class Dataset(ABC):
    """A sequence of samples in a fixed order. Subclasses define ``__len__``, :meth:`batch` and :meth:`fingerprint`.

    Attributes:
        rejected: files that cannot be samples, for the report at the end of a run.
        has_units: whether several samples may belong to one unit, so that batches have ``units``.
        notes: properties of the whole data set, such as class names; a selection has the same.
        numbers: the index of each sample in the records of a run, if it is not ``rank + i * size`` because rejected
            files are counted too; else ``None``.
    """

    rejected: Sequence[Rejected] = ()
    has_units: bool = False
    notes: Mapping[str, Any] = MappingProxyType({})
    numbers: Numbers | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at the given places, in that order; consecutive places come as a ``range``."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, that changes when a sample, a target or a file changes."""

    def batches(self, batch_size: int) -> Batches:
        """Return lazy batches of the data set. Raises ConfigError if ``batch_size`` is not an integer of at least 1."""
        return Batches(self, batch_size)

    def select(self, indices: Sequence[int]) -> Dataset:
        """Return the samples at the given places as a data set whose ``rejected`` is empty."""
        return Selection(self, indices)

    def share(self, rank: int, size: int) -> Dataset:
        """Return every ``size``-th sample from sample ``rank`` on, and the same share of the rejected files.

        A data set that need not read all samples for this overrides it.
        """
        if size == 1:
            return self
        part = self.select(range(rank, len(self), size))
        part.rejected = self.rejected[rank::size]
        return part

    def most_samples(self) -> int:
        """Return an upper limit of the number of samples, which may be known without reading all of them."""
        return len(self)

    def __init_subclass__(cls, **how: Any) -> None:
        """Accept the former name of :meth:`source_files`, with a warning."""
        super().__init_subclass__(**how)
        if "watched" in vars(cls) and "source_files" not in vars(cls):
            warn_renamed(f"{cls.__qualname__}.watched()", "source_files()")
            cls.source_files = _of_former_name  # type: ignore[method-assign, assignment]

    def source_files(self) -> set[str]:
        """Return the files and folders whose modification time changes when samples are added or changed.

        A run with a journal checks them at its end, in addition to the paths of ``--data_path``.
        """
        return set()

    def watched(self) -> set[str]:
        """Return :meth:`source_files` (deprecated name); in a class that overrides it, those of the base class."""
        mro = type(self).__mro__
        former = [place for place, one in enumerate(mro) if vars(one).get("source_files") is _of_former_name]
        bases = mro[former[-1] + 1 :] if former else mro
        found: set[str] = next(vars(one)["source_files"] for one in bases if "source_files" in vars(one))(self)
        return found


def _of_former_name(dataset: Dataset) -> set[str]:
    """Return the files and folders of a data set of a class that overrides ``watched``."""
    return dataset.watched()


class Selection(Dataset):
    """Some samples of another data set."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self._dataset, self._indices = dataset, indices
        self.rejected = []
        self.has_units, self.notes = dataset.has_units, dataset.notes

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return samples by their places in the selection."""
        if isinstance(places, range) and isinstance(self._indices, range):
            return self._dataset.batch(self._indices[places.start : places.stop : places.step])
        return self._dataset.batch([self._indices[i] for i in places])

    def fingerprint(self) -> str:
        """Return a hash of the fingerprint of the whole data set and of the selected indices."""
        from hashlib import sha256  # loading OpenSSL costs start-up time

        return sha256(f"{self._dataset.fingerprint()} {','.join(map(str, self._indices))}".encode()).hexdigest()

    def source_files(self) -> set[str]:
        """Return the files and folders of the whole data set."""
        return self._dataset.source_files()


class ListDataset(Dataset):
    """Samples of any kind held in memory. Raises ConfigError if the lists have different lengths.

    Args:
        samples, targets: one object per sample; targets may be ``None``.
        names: one per sample; ``None``: their numbers.
        units: one name per sample; ``None``: each sample is an independent unit.
        files: the files that the samples were read from; the fingerprint covers their content.
        rejected, notes: as in :class:`Dataset`.
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
        self.rejected, self.has_units, self.notes = list(rejected), units is not None, dict(notes or {})
        for what, values in (("targets", targets), ("names", self.names), ("units", units)):
            if values is not None and len(values) != len(samples):
                raise ConfigError(f"{len(values)} {what} for {len(samples)} samples; give one per sample")

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at the given places."""
        units = None if self.units is None else pick(self.units, places)
        return Batch(pick(self.samples, places), pick(self.targets, places), pick(self.names, places), units)

    def fingerprint(self) -> str:
        """Return a hash of names, units and file contents; without files, of the samples and targets."""
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

    def source_files(self) -> set[str]:
        """Return the files that the samples were read from."""
        return {str(file) for file in self.files}


def _content(value: Any) -> bytes:
    """Return bytes that change with a value: the data of an array, the ``repr`` of other values."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, dict):
        return b"".join(_content(key) + _content(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(map(_content, value)) + b")"
    return repr(value).encode("utf-8", "surrogatepass")


class Batches:
    """The batches of a data set, in order, iterable any number of times; the last one may be shorter.

    Args:
        dataset: the data set. batch_size: samples per batch.
        places: only the batches that contain one of these samples; ``None``: all.
    """

    def __init__(self, dataset: Dataset, batch_size: int, places: Iterable[int] | None = None) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"batch_size {batch_size!r} must be an integer of at least 1")
        self.dataset, self.batch_size = dataset, batch_size
        self._only = None if places is None else sorted({place - place % batch_size for place in places})

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Batch]:
        total = len(self.dataset)
        for start in self._starts:
            yield self.dataset.batch(range(start, min(start + self.batch_size, total)))

    @property
    def _starts(self) -> Sequence[int]:
        return range(0, len(self.dataset), self.batch_size) if self._only is None else self._only


def dataset_of(batches: Iterable[Batch]) -> Dataset | None:
    """Return the attribute ``dataset`` of batches, for calibration and the rejected files; ``None`` if missing."""
    return getattr(batches, "dataset", None)
