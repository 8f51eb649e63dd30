"""Records files with one number per sample, as CSV."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, DataError, InputError
from utils.datasets.base import Batch, Numbers
from utils.metrics.base import Metric, Records
from utils.pipeline.resume.records.file import RecordsFile
from utils.pipeline.resume.records.names import unwritable

COLUMNS = ("index", "name", "label")
"""The first columns; then ``unit`` and ``margin``, if samples have them; the last one has the name of the metric."""

_WHOLE = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One row.

    Attributes:
        index: the sample's position in the data set. name: of the sample.
        label: an integer or a text; ``None`` for any other target.
        value: of the metric; ``None``: the sample could not be run.
        unit: name of its unit; ``None``: every sample is one unit.
        margin: as :attr:`~utils.metrics.base.Records.margins` has it; ``None``: the metric gives none.
    """

    index: int
    name: str
    label: int | str | None
    value: float | None
    unit: str | None = None
    margin: float | None = None


class RecordWriter(RecordsFile):
    """Writes the CSV file of a metric with one number per sample."""

    _mode: ClassVar[dict[str, Any]] = {"mode": "w", "encoding": "utf-8", "errors": "surrogateescape", "newline": ""}

    def __init__(
        self,
        path: Path,
        metric_name: str,
        *,
        rank: int = 0,
        size: int = 1,
        numbers: Numbers | None = None,
        has_margins: bool = False,
    ) -> None:
        super().__init__(path, metric_name, rank=rank, size=size, numbers=numbers)
        self._has_margins, self._written = has_margins, 0
        self._rows = csv.writer(self._file, lineterminator="\n")
        # Before Python 3.13 csv does not quote a single carriage return, which would end the row for a reader.
        self._quoted = csv.writer(self._file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self._has_units: bool | None = None

    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Write the rows of one step; the record has one number per good sample."""
        cells: list[tuple[float | int | str, ...]] = [("",) * (1 + self._has_margins)] * len(batch.names)
        for position, *values in zip(*_aligned(batch, record, good, self._has_margins), strict=True):
            cells[position] = tuple(values)
        try:
            self._start(batch.units is not None)
            units = [()] * len(cells) if batch.units is None else [(unit,) for unit in batch.units]
            index = self._positions(self._written + len(cells), self._written).tolist()
            for number, name, label, unit, cell in zip(index, batch.names, _labels(batch), units, cells, strict=True):
                rows = self._quoted if "\r" in f"{name}{label}{unit[0] if unit else ''}" else self._rows
                rows.writerow((number, name, label, *unit, *cell))
            self._written += len(cells)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _start(self, has_units: bool) -> None:
        """Write the first row when the first batch shows whether there are units."""
        if self._has_units is None:
            own = (*(("unit",) if has_units else ()), *(("margin",) if self._has_margins else ()))
            self._rows.writerow((*COLUMNS, *own, self.metric_name))
            self._has_units = has_units
        elif self._has_units != has_units:
            raise InputError("one batch has units and another does not; name them for all batches or none")

    def _finish(self) -> None:
        if self._has_units is None:
            self._start(False)


def _aligned(
    batch: Batch, record: Array | Records | None, good: Sequence[int] | None, has_margins: bool
) -> list[Sequence[Any]]:
    """Return the positions of the good samples, their margins if the metric gives any, and their values."""
    if record is None:
        return [(), (), ()] if has_margins else [(), ()]
    margins: list[Sequence[Any]] = []
    if isinstance(record, Records):
        if record.samples is not None or record.units is not None:
            raise InputError("records with samples or units are not one number per sample; set per_sample = False")
        margins = [] if record.margins is None else [record.margins.tolist()]
        record = record.values
    if has_margins and not margins:
        margins = [[math.nan] * len(record)]
    positions = range(len(batch.names)) if good is None else good
    if record.shape != (len(positions),) or record.dtype.kind not in "biuf":
        raise InputError(
            f"a record of dtype {record.dtype} and shape {record.shape} does not fit {len(positions)} samples; "
            "the records file takes one number per sample"
        )
    values = record.tolist()
    margins = margins if has_margins else []
    return [positions, *margins, list(map(int, values)) if record.dtype.kind == "b" else values]


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


def record_writer(
    path: Path, metric: Metric, *, rank: int = 0, size: int = 1, numbers: Numbers | None = None
) -> RecordsFile:
    """Return the writer for a metric's records; arguments as for :class:`RecordWriter`.

    Raises ConfigError if the file cannot be written, or another run writes it.
    """
    how: dict[str, Any] = {"rank": rank, "size": size, "numbers": numbers, "has_margins": metric.has_margins}
    if metric.per_sample:
        return RecordWriter(path, metric.name, **how)
    from utils.pipeline.resume.records.arrays import ArrayRecordWriter

    return ArrayRecordWriter(path, metric.name, **how)


class SampleRecords:
    """The rows of a CSV records file, read one by one in each iteration.

    Attributes:
        metric_name: name of the metric. has_units: whether rows have units.

    Raises:
        DataError: the file cannot be read or is not a records file; while iterating, also for an invalid row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._rows(), [])
        own = header[len(COLUMNS) : -1]
        self.has_units, self._has_margins = "unit" in own, "margin" in own
        expected = [*COLUMNS, *(["unit"] if self.has_units else []), *(["margin"] if self._has_margins else [])]
        if header[:-1] != expected:
            raise DataError(
                f"{path} is not a records file: its first row is not {','.join(COLUMNS)} and a metric's name"
            )
        self.metric_name = header[-1]

    def __iter__(self) -> Iterator[SampleRecord]:
        rows = self._rows()
        next(rows)
        for number, row in enumerate(rows, start=2):
            try:
                index, name, label, *own, value = row
                if len(own) != self.has_units + self._has_margins:
                    raise ValueError(row)
                target = int(label) if _WHOLE.fullmatch(label) else label or None
                unit = own[0] if self.has_units else None
                margin = float(own[-1]) if self._has_margins and own[-1] else None
                yield SampleRecord(int(index), name, target, float(value) if value else None, unit, margin)
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
