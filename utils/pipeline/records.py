"""What the metric says of every single sample, as a CSV file beside the JSON result, for paired comparisons of runs."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.base import Array, ConfigError, DataError, InputError
from utils.datasets.samples import Batch
from utils.pipeline.locks import open_locked, release

if TYPE_CHECKING:
    from typing_extensions import Self

COLUMNS = ("index", "name", "label")
"""The first columns; the last one has the name of the metric."""


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One row: the sample's place in the data set, and the metric's value for it (``None``: it could not be run)."""

    index: int
    name: str
    label: int | None
    value: float | None


def records_path(result: Path) -> Path:
    """Return the file that goes with a JSON result: ``result.samples.csv`` for ``result.json``."""
    return result.with_name(f"{result.stem}.samples.csv")


class RecordWriter:
    """Writes the rows step by step, in the order of the samples; the file appears when it is complete.

    A context manager: leaving it completes the file, leaving it by an exception writes none. What a killed run leaves
    behind, ``.<name>.part``, is overwritten by the next one. The same samples and records give the same bytes.

    Args:
        path: the CSV file; an older one stays until the new one is complete.
        metric_name: name of the last column.
        rank, size: which part of the data set this is (:func:`utils.datasets.sharding.shard`): row ``i`` has the index
            ``rank + i * size``.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """

    def __init__(self, path: Path, metric_name: str, *, rank: int = 0, size: int = 1) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.part")
        self._index, self._stride = rank, size
        try:
            self._handle = open_locked(self._part, create=True)
            os.ftruncate(self._handle, 0)
        except OSError as error:
            raise self._unwritable(error) from error
        self._file = os.fdopen(self._handle, "w", encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
        self._rows = csv.writer(self._file, lineterminator="\n")
        # Before Python 3.13 a lone carriage return is not quoted by itself, and would end the row for a reader.
        self._quoted = csv.writer(self._file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self._rows.writerow((*COLUMNS, metric_name))

    def write(self, batch: Batch, record: Array | None, good: Sequence[int] | None = None) -> None:
        """Write the rows of one step.

        Args:
            batch: the whole batch as the data set gave it, with the samples that failed.
            record: what the metric's ``update`` returned, one number per sample that made it; ``None`` for none.
            good: positions in the batch of the samples that made it; ``None`` where all did (none, without a record).

        Raises:
            InputError: the record is not one number per good sample.
            ConfigError: the file cannot be written, as on a full disk.
        """
        values: list[float | int | str] = [""] * len(batch.names)
        for position, value in zip(*_aligned(batch, record, good), strict=True):
            values[position] = value
        labels: list[int | str] = [""] * len(batch.names) if batch.labels is None else batch.labels.tolist()
        try:
            for name, label, cell in zip(batch.names, labels, values, strict=True):
                rows = self._quoted if "\r" in name else self._rows
                rows.writerow((self._index, name, label, cell))
                self._index += self._stride
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Complete the file; a second call, or one after :meth:`discard`, does nothing.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._handle < 0:
            return
        try:
            self._file.close()  # flushes; the descriptor stays, and with it the lock
            os.fsync(self._handle)
            self._part.replace(self.path)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self._release()

    def discard(self) -> None:
        """Write no file after all; an older one stays."""
        if self._handle < 0:
            return
        with suppress(OSError):  # a full disk, most likely the reason why there is nothing to keep
            self._file.close()
        self._part.unlink(missing_ok=True)
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _release(self) -> None:
        handle, self._handle = self._handle, -1
        release(handle)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"records file {self.path} cannot be written: {error.strerror}; "
            "see to space and permissions of the folder of --json"
        )


def _aligned(
    batch: Batch, record: Array | None, good: Sequence[int] | None
) -> tuple[Sequence[int], list[float] | list[int]]:
    """Return the positions of the good samples and their values."""
    if record is None:
        return (), []
    positions = range(len(batch.names)) if good is None else good
    if record.shape != (len(positions),) or record.dtype.kind not in "biuf":
        raise InputError(
            f"a record of dtype {record.dtype} and shape {record.shape} does not fit {len(positions)} samples; "
            "the records file takes one number per sample"
        )
    values = record.tolist()
    return positions, list(map(int, values)) if record.dtype.kind == "b" else values


class SampleRecords:
    """The rows of a records file, read one by one, as often as they are iterated.

    Attributes:
        metric_name: what was measured.

    Raises:
        DataError: the file cannot be read or is no records file; while iterating, also a row that is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._rows(), [])
        if len(header) != len(COLUMNS) + 1 or tuple(header[:-1]) != COLUMNS:
            raise DataError(f"{path} is no records file: its first row is not {','.join(COLUMNS)} and a metric's name")
        self.metric_name = header[-1]

    def __iter__(self) -> Iterator[SampleRecord]:
        rows = self._rows()
        next(rows)
        for number, row in enumerate(rows, start=2):
            try:
                index, name, label, value = row
                yield SampleRecord(int(index), name, int(label) if label else None, float(value) if value else None)
            except ValueError as error:
                raise DataError(f"{self.path} row {number}: {row} is not a sample; write the file again") from error

    def _rows(self) -> Iterator[list[str]]:
        try:
            with self.path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
                yield from csv.reader(file)
        except OSError as error:
            raise DataError(f"records file {self.path} cannot be read: {error.strerror}; check the path") from error
        except csv.Error as error:
            raise DataError(f"{self.path} is no records file: {error}; write the file again") from error
