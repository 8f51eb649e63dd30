"""Records files with one number per sample, as CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, DataError, InputError
from utils.datasets.base import Batch
from utils.metrics.base import Metric, Records
from utils.pipeline.resume.records.file import RecordsFile
from utils.pipeline.resume.records.names import unwritable

COLUMNS = ("index", "name", "label")
"""The first columns; then ``unit`` if samples have units; the last column has the name of the metric."""

_WHOLE = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One row.

    Attributes:
        index: the sample's position in the data set. name: of the sample.
        label: an integer or a text; ``None`` for any other target.
        value: of the metric; ``None``: the sample could not be run.
        unit: name of its unit; ``None``: every sample is one unit.
    """

    index: int
    name: str
    label: int | str | None
    value: float | None
    unit: str | None = None
    margin: float | None = None


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
        # Before Python 3.13 csv does not quote a single carriage return, which would end the row for a reader.
        self._quoted = csv.writer(self._file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self._has_units: bool | None = None

    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Write the rows of one step; the record has one number per good sample."""
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
        """Write the first row when the first batch shows whether there are units."""
        if self._has_units is None:
            self._rows.writerow((*COLUMNS, *(("unit",) if has_units else ()), self.metric_name))
            self._has_units = has_units
        elif self._has_units != has_units:
            raise InputError("one batch has units and another does not; name them for all batches or none")

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
            raise InputError("records with samples or units are not one number per sample; set per_sample = False")
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
    """Return the label column: integers, the text of other scalars; empty for any other target."""
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


def record_writer(path: Path, metric: Metric, *, rank: int = 0, size: int = 1) -> RecordsFile:
    """Return the writer for a metric's records; arguments as for :class:`RecordWriter`.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """
    if metric.per_sample:
        return RecordWriter(path, metric.name, rank=rank, size=size)
    from utils.pipeline.resume.records.arrays import ArrayRecordWriter

    return ArrayRecordWriter(path, metric.name, rank=rank, size=size)


class SampleRecords:
    """The rows of a CSV records file, read one by one in each iteration.

    Attributes:
        metric_name: name of the metric.
        has_units: whether rows have units.

    Raises:
        DataError: the file cannot be read or is not a records file; while iterating, also for an invalid row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._rows(), [])
        self.has_units = len(header) == len(COLUMNS) + 2 and header[-2] == "unit"
        if len(header) != len(COLUMNS) + 1 + self.has_units or tuple(header[: len(COLUMNS)]) != COLUMNS:
            raise DataError(
                f"{path} is not a records file: its first row is not {','.join(COLUMNS)} and a metric's name"
            )
        self.metric_name = header[-1]

    def __iter__(self) -> Iterator[SampleRecord]:
        rows = self._rows()
        next(rows)
        for number, row in enumerate(rows, start=2):
            try:
                index, name, label, *unit, value = row
                if len(unit) != self.has_units:
                    raise ValueError(row)
                target = int(label) if _WHOLE.fullmatch(label) else label or None
                score = float(value) if value else None
                yield SampleRecord(int(index), name, target, score, unit[0] if unit else None)
            except ValueError as error:
                raise DataError(f"{self.path} row {number}: {row} is not a sample; write the file again") from error

    def _rows(self) -> Iterator[list[str]]:
        try:
            with self.path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
                yield from csv.reader(file)
        except OSError as error:
            raise DataError(f"records file {self.path} cannot be read: {error.strerror}; check the path") from error
        except csv.Error as error:
            raise DataError(f"{self.path} is not a records file: {error}; write the file again") from error
