"""Data sets of images or rows: a compact table of files, or the rows of one array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array
from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.base import Batch, Batches, Dataset, Rejected
from utils.datasets.table import CHUNK, Labels, Sample, SampleTable

__all__ = ["Batch", "Batches", "Dataset", "Labels", "Rejected", "Sample", "TableDataset"]

BLOCK = 1024
"""Samples hashed per step; the fingerprint depends on it."""

ROW_BYTES = 2**20
"""Approximate bytes of rows hashed per step; the fingerprint does not depend on it."""


class TableDataset(Dataset):
    """Files or array rows in a fixed order, held compactly: about 20 bytes and the file name for each.

    Args:
        samples: all of them labelled, or none.
        classes: class names by class index, if known.
        rows: array whose row ``i`` is the content of ``samples[i]``; ``None`` for files.
        listed_in: the file that lists the samples, if any.

    ``labels`` is int64 of shape N, or ``None`` for unlabelled samples. Raises ConfigError if only some of the samples
    have a label.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        *,
        classes: list[str] | None = None,
        rejected: Iterable[Rejected] = (),
        rows: Array | None = None,
        listed_in: Path | None = None,
    ) -> None:
        self.samples = samples if isinstance(samples, SampleTable) else SampleTable.of(samples)
        self.classes = classes
        self.notes = {} if classes is None else {"classes": classes}
        self.rejected, self.rows, self.listed_in = list(rejected), rows, listed_in
        self.labels: Labels | None = self.samples.labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return the samples at the given places: paths, or rows of the array, with int64 labels."""
        part = _slice(places) if isinstance(places, range) else np.asarray(places, np.int64)
        names, rows = self.samples.names(part), self.rows
        samples: list[Any] = list(map(Path, names)) if rows is None else list(rows[part])
        return Batch(samples, None if self.labels is None else self.labels[part], names)

    def select(self, indices: Sequence[int]) -> TableDataset:
        """Return the samples at the given places as a new table that does not keep the other samples in memory."""
        part = _slice(indices) if isinstance(indices, range) else np.asarray(indices, np.int64)
        rows = None if self.rows is None else self.rows[part]
        return TableDataset(self.samples.taken(part), classes=self.classes, rows=rows, listed_in=self.listed_in)

    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, that changes when a sample, a label or a file changes.

        It covers, in order, the samples' paths relative to their innermost common folder (a data set that is moved
        keeps its fingerprint), their labels, and the size and modification time of each file, or the content of the
        rows of an ``.npz`` file. Images are not read: a change that keeps size and time is not detected, and a copy
        with new times is another data set. A deleted file counts as a change. The cost is one ``stat`` per image (about
        5 us if the folder is in the page cache), or 1 s per GB of rows.
        """
        from hashlib import sha256  # loading OpenSSL costs start-up time

        samples, labels, rows = self.samples, self.labels, self.rows
        digest = sha256(f"{len(samples)} {labels is not None} {rows is not None}\n".encode())
        relative = samples.relative()
        for start in range(0, len(samples), BLOCK):
            part = slice(start, start + BLOCK)
            digest.update("\0".join(relative.names(part)).encode("utf-8", "surrogatepass"))
            if rows is None:
                digest.update(np.array([size_and_time(name) for name in samples.names(part)], "<i8").tobytes())
            if labels is not None:
                digest.update(labels[part].astype("<i8").tobytes())
        if rows is not None:
            digest.update(f"{rows.dtype.str} {rows.shape}".encode())
            count = max(1, ROW_BYTES * len(rows) // max(1, rows.nbytes))
            for start in range(0, len(rows), count):
                digest.update(rows[start : start + count].tobytes())
        return digest.hexdigest()

    def source_files(self) -> set[str]:
        """Return the folders of the files, whose times change when a file is added or removed, and the list."""
        samples = self.samples
        listed = set() if self.listed_in is None else {str(self.listed_in)}
        return listed | {
            prefix[:-1] or prefix or "."
            for start in range(0, len(samples) if self.rows is None else 0, CHUNK)
            for prefix in samples.prefixes(slice(start, start + CHUNK))
        }


def _slice(places: range) -> slice:
    """Return a range of places as a slice, which does not copy them."""
    stop = None if places.stop < 0 else places.stop  # range(2, -1, -1) includes place 0
    return slice(places.start, stop, places.step) if len(places) else slice(0, 0)
