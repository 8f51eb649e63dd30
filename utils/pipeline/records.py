"""What the metric says of every single sample, as a file beside the JSON result, for paired comparisons of runs.

One number per sample is kept as CSV, for people too; all other records as arrays (:mod:`utils.pipeline.record_arrays`).
"""

from __future__ import annotations

import csv
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.datasets.base import Batch
from utils.metrics.base import Metric, Records
from utils.pipeline.locks import open_locked, release

if TYPE_CHECKING:
    from typing_extensions import Self

COLUMNS = ("index", "name", "label")
"""The first columns; ``unit`` follows where samples belong to units, and the last one has the name of the metric."""

SUFFIXES = (".csv", ".npz")
"""Endings of the two kinds of records files."""

_WHOLE = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One row: the sample's place in the data set, and the metric's value for it (``None``: it could not be run).

    ``label`` is a whole number or a text, ``None`` where the target is neither; ``unit`` is ``None`` where every sample
    is a unit of its own.
    """

    index: int
    name: str
    label: int | str | None
    value: float | None
    unit: str | None = None


def records_path(result: Path, metric: Metric | None = None) -> Path:
    """Return the file that goes with a JSON result: ``result.samples.csv`` for ``result.json``.

    Metrics whose records are not one number per sample have ``result.samples.npz``.
    """
    suffix = SUFFIXES[metric is not None and not metric.per_sample]
    return result.with_name(f"{result.stem}.samples{suffix}")


def find_records(result: Path) -> Path | None:
    """Return the records file that lies beside a JSON result; ``None`` where there is none."""
    found = (result.with_name(f"{result.stem}.samples{suffix}") for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def record_writer(path: Path, metric: Metric, *, rank: int = 0, size: int = 1) -> RecordsFile:
    """Return the writer for a metric's records; the arguments are those of :class:`RecordWriter`.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """
    if metric.per_sample:
        return RecordWriter(path, metric.name, rank=rank, size=size)
    from utils.pipeline.record_arrays import ArrayRecordWriter

    return ArrayRecordWriter(path, metric.name, rank=rank, size=size)


def unwritable(path: Path, error: OSError) -> ConfigError:
    """Return one line of what the system has against a records file."""
    return ConfigError(
        f"records file {path} cannot be written: {error.strerror}; see to space and permissions of the folder of --json"
    )


def remove_other_kind(path: Path) -> None:
    """Remove the records of an earlier run by another metric: one result has one records file."""
    for suffix in SUFFIXES:
        if suffix != path.suffix:
            path.with_suffix(suffix).unlink(missing_ok=True)


class RecordsFile(ABC):
    """A records file that is written step by step, in the order of the samples, and appears when it is complete.

    A context manager: leaving it completes the file, leaving it by an exception writes none. What a killed run leaves
    behind, ``.<name>.part``, is overwritten by the next one. The same samples and records give the same bytes.

    Args:
        path: the file; an older one stays until the new one is complete, which also removes one of the other kind.
        metric_name: what the records are of.
        rank, size: which part of the data set this is (:func:`utils.datasets.sharding.shard`): sample ``i`` has the
            index ``rank + i * size``.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """

    _mode: ClassVar[dict[str, Any]]

    def __init__(self, path: Path, metric_name: str, *, rank: int = 0, size: int = 1) -> None:
        self.path, self.metric_name = path, metric_name
        self._part = path.with_name(f".{path.name}.part")
        self._index, self._stride = rank, size
        try:
            self._handle = open_locked(self._part, create=True)
            os.ftruncate(self._handle, 0)
        except OSError as error:
            raise unwritable(path, error) from error
        self._file = os.fdopen(self._handle, closefd=False, **self._mode)

    @abstractmethod
    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Take in one step.

        Args:
            batch: the whole batch as the data set gave it, with the samples that failed.
            record: what the metric's ``update`` returned for the samples that made it; ``None`` where none did.
            good: positions in the batch of the samples that made it; ``None`` where all did (none, without a record).

        Raises:
            InputError: the record does not fit the good samples.
            ConfigError: the file cannot be written, as on a full disk.
        """

    @abstractmethod
    def _finish(self) -> None:
        """Write what is still to be written before the file is complete."""

    def close(self) -> None:
        """Complete the file; a second call, or one after :meth:`discard`, does nothing.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._handle < 0:
            return
        try:
            self._finish()
            self._file.close()  # flushes; the descriptor stays, and with it the lock
            os.fsync(self._handle)
            self._part.replace(self.path)
            remove_other_kind(self.path)
        except OSError as error:
            raise unwritable(self.path, error) from error
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


class RecordWriter(RecordsFile):
    """Writes the CSV file of a metric with one number per sample."""

    _mode: ClassVar[dict[str, Any]] = {
        "mode": "w",
        "encoding": "utf-8",
        "errors": "surrogateescape",
        "newline": "",
    }

    def __init__(self, path: Path, metric_name: str, *, rank: int = 0, size: int = 1) -> None:
        super().__init__(path, metric_name, rank=rank, size=size)
        self._rows = csv.writer(self._file, lineterminator="\n")
        # Before Python 3.13 a lone carriage return is not quoted by itself, and would end the row for a reader.
        self._quoted = csv.writer(self._file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self._has_units: bool | None = None

    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Write the rows of one step; the record is one number per sample that made it."""
        values: list[float | int | str] = [""] * len(batch.names)
        for position, value in zip(*_aligned(batch, record, good), strict=True):
            values[position] = value
        try:
            self._start(batch.units is not None)
            units = [()] * len(values) if batch.units is None else [(unit,) for unit in batch.units]
            for name, label, unit, cell in zip(batch.names, _labels(batch), units, values, strict=True):
                rows = self._quoted if "\r" in f"{name}{label}{unit[0] if unit else ''}" else self._rows
                rows.writerow((self._index, name, label, *unit, cell))
                self._index += self._stride
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _start(self, has_units: bool) -> None:
        """Write the first row, once it is known whether there are units."""
        if self._has_units is None:
            self._rows.writerow((*COLUMNS, *(("unit",) if has_units else ()), self.metric_name))
            self._has_units = has_units
        elif self._has_units != has_units:
            raise InputError("a batch names units and another does not; let the data set name them for all or none")

    def _finish(self) -> None:
        if self._has_units is None:
            self._start(False)


def _aligned(
    batch: Batch, record: Array | Records | None, good: Sequence[int] | None
) -> tuple[Sequence[int], list[float] | list[int]]:
    """Return the positions of the good samples and their values."""
    if record is None:
        return (), []
    if isinstance(record, Records):
        if record.samples is not None or record.units is not None:
            raise InputError(
                "records with samples or units of their own are not one number per sample; clear per_sample"
            )
        record = record.values
    positions = range(len(batch.names)) if good is None else good
    if record.shape != (len(positions),) or record.dtype.kind not in "biuf":
        raise InputError(
            f"a record of dtype {record.dtype} and shape {record.shape} does not fit {len(positions)} samples; "
            "the records file takes one number per sample"
        )
    values = record.tolist()
    return positions, list(map(int, values)) if record.dtype.kind == "b" else values


def _labels(batch: Batch) -> list[int | str]:
    """Return what the label column says: whole numbers, or the text of other scalars; nothing for all else."""
    targets: Any = batch.targets
    if targets is None:
        return [""] * len(batch.names)
    if isinstance(targets, np.ndarray) and targets.ndim == 1 and targets.dtype.kind in "iu":
        return list(map(int, targets))
    return [_label(target) for target in targets]


def _label(target: Any) -> int | str:
    if isinstance(target, np.generic) or (isinstance(target, np.ndarray) and target.ndim == 0):
        target = target.item()
    if isinstance(target, int):
        return int(target)
    return str(target) if isinstance(target, (str, float)) else ""


class SampleRecords:
    """The rows of a CSV records file, read one by one, as often as they are iterated.

    Attributes:
        metric_name: what was measured.
        has_units: whether rows name units.

    Raises:
        DataError: the file cannot be read or is no records file; while iterating, also a row that is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._rows(), [])
        self.has_units = len(header) == len(COLUMNS) + 2 and header[-2] == "unit"
        if len(header) != len(COLUMNS) + 1 + self.has_units or tuple(header[: len(COLUMNS)]) != COLUMNS:
            raise DataError(f"{path} is no records file: its first row is not {','.join(COLUMNS)} and a metric's name")
        self.metric_name = header[-1]

    def __iter__(self) -> Iterator[SampleRecord]:
        rows = self._rows()
        next(rows)
        for number, row in enumerate(rows, start=2):
            try:
                index, name, label, *unit, value = row
                if len(unit) != self.has_units:
                    raise ValueError(row)
                known = int(label) if _WHOLE.fullmatch(label) else label or None
                yield SampleRecord(int(index), name, known, float(value) if value else None, *unit)
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
