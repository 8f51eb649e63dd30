"""Compact table of samples: about 20 bytes and the file name per sample."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from engine import ConfigError

Labels = np.ndarray[Any, np.dtype[np.int64]]
Offsets = np.ndarray[Any, np.dtype[np.int64]]
Folders = np.ndarray[Any, np.dtype[np.int32]]

CHUNK = 1024
"""Samples expanded at a time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: an image file, or a row of an ``.npz`` file (then ``path`` is ``file.npz[row]``)."""

    path: Path
    label: int | None


def prefix_of(folder: Path) -> str:
    """Return the part before the file names in paths of a folder: ``"data/"``, and ``""`` for ``.``."""
    return str(folder / "x")[:-1]


class SampleTable(Sequence[Sample]):
    """An immutable sequence of samples; :class:`Sample` objects are created on access.

    A sample is an index into the list of folders, a range of one blob of file names, and a label. (Python objects of
    the same content take about 300 bytes each.) A slice is an independent table without the other samples, and pickles
    as small. ``labels`` is int64 of shape N, or ``None`` for unlabelled samples.
    """

    def __init__(
        self, prefixes: list[str], folders: Folders, blob: bytearray, offsets: Offsets, labels: Labels | None
    ) -> None:
        self._prefixes, self._folders, self._blob, self._offsets = prefixes, folders, blob, offsets
        self.labels = labels

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> SampleTable:
        """Return the samples as a table; all of them must have a label, or none."""
        listing = Listing()
        for sample in samples:
            prefix, separator, name = str(sample.path).rpartition(os.sep)
            listing.add(prefix + separator, name, sample.label)
        return listing.table()

    def __len__(self) -> int:
        return len(self._folders)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleTable: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleTable:
        if isinstance(index, slice):
            return self.taken(index)
        place = range(len(self))[index]
        (name,) = self.names(slice(place, place + 1))
        return Sample(Path(name), None if self.labels is None else int(self.labels[place]))

    def __iter__(self) -> Iterator[Sample]:
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            names = self.names(part)
            labels = [None] * len(names) if self.labels is None else self.labels[part].tolist()
            yield from map(Sample, map(Path, names), labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has no hash either

    def prefixes(self, part: slice) -> set[str]:
        """Return the folder prefixes of the file names of some samples."""
        return {self._prefixes[folder] for folder in np.unique(self._folders[part]).tolist()}

    def names(self, part: slice | Offsets) -> list[str]:
        """Return the paths of some samples, given by a slice or an array of places, as text."""
        prefixes, blob = self._prefixes, self._blob
        starts, ends = self._offsets[:-1][part].tolist(), self._offsets[1:][part].tolist()
        return [
            # "surrogatepass" keeps all strings distinct, including file names that are not UTF-8 on disk.
            prefixes[folder] + blob[start:end].decode("utf-8", "surrogatepass")
            for folder, start, end in zip(self._folders[part].tolist(), starts, ends, strict=True)
        ]

    def relative(self) -> SampleTable:
        """Return the same samples with paths relative to their innermost common folder."""
        prefixes = [os.path.join(os.path.abspath(prefix), "") for prefix in self._prefixes]
        # A slice may use only some of the folders.
        used = np.flatnonzero(np.bincount(self._folders, minlength=len(prefixes))).tolist()
        root = os.path.join(os.path.commonpath([prefixes[folder] for folder in used]), "") if used else ""
        below = [prefix[len(root) :] for prefix in prefixes]
        return SampleTable(below, self._folders, self._blob, self._offsets, self.labels)

    def taken(self, part: slice | Offsets) -> SampleTable:
        """Return some samples, given by a slice or an array of places, as an independent table."""
        starts, ends = self._offsets[:-1][part], self._offsets[1:][part]
        blob = bytearray()
        for chunk in range(0, len(starts), CHUNK):
            some = slice(chunk, chunk + CHUNK)
            bounds = zip(starts[some].tolist(), ends[some].tolist(), strict=True)
            blob += b"".join([self._blob[start:end] for start, end in bounds])
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        labels = None if self.labels is None else self.labels[part].copy()
        return SampleTable(self._prefixes, self._folders[part].copy(), blob, offsets, labels)


class Listing:
    """Builder of a table: samples are added one by one, at their final cost in memory."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._folders = array("i")
        self._blob = bytearray()
        self._offsets = array("q", [0])
        self._labels = array("q")

    def __len__(self) -> int:
        return len(self._folders)

    def add(self, prefix: str, name: str, label: int | None) -> None:
        """Append the sample whose path is ``prefix + name`` (:func:`prefix_of`)."""
        self._folders.append(self._index.setdefault(prefix, len(self._index)))
        self._blob += name.encode("utf-8", "surrogatepass")
        self._offsets.append(len(self._blob))
        if label is not None:
            self._labels.append(label)

    def table(self) -> SampleTable:
        """Return the table, to which no sample can be added; raise ConfigError if only some of them have a label."""
        if len(self._labels) not in (0, len(self)):
            raise ConfigError(f"{len(self._labels)} of {len(self)} samples have a label; label all of them, or none")
        return SampleTable(
            list(self._index),
            np.frombuffer(self._folders, np.int32) if self else np.zeros(0, np.int32),
            self._blob,
            np.frombuffer(self._offsets, np.int64),
            np.frombuffer(self._labels, np.int64) if self._labels else None,
        )
