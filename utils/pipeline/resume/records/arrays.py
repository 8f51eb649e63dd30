"""Records files that hold arrays: any number of records per sample, of any plain dtype, with their units.

A ``.npz`` of plain arrays (no pickle). Texts are UTF-8 in one array of bytes, with a second array of their ends.

=================  =====================================================================================================
``metric_name``    name of the metric, as bytes
``index``          per sample its position in the data set
``name``           per sample its name; ``name_ends``
``ran``            per sample whether it could be run
``values``         per record the metric's values, ordered by samples
``sample``         per record the position of its sample in ``index``
``unit``           names of the units, sorted; ``unit_ends``. Missing without units, with the two below
``sample_unit``    per sample the position of its unit in ``unit``; missing if only records have units
``margin``         per sample its margin (``utils.metrics.base.Records``); missing if the metric computes none
``record_unit``    per record the position of its unit; missing if only samples have units
=================  =====================================================================================================
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, cast

import numpy as np

from engine import Array, DataError, InputError
from tecoinfer_modelzoo.text import one_line
from utils.arrays import array_errors
from utils.datasets.base import Batch, Numbers
from utils.metrics.base import Records
from utils.pipeline.resume.records.file import RecordsFile
from utils.pipeline.resume.records.stored_arrays import EPOCH


@dataclass(slots=True, eq=False)
class RecordArrays:
    """The columns of a records file.

    Attributes:
        metric_name: name of the metric.
        index: per sample its position in the data set, int64. names, ran: per sample.
        values: of the metric, records first. sample: per record the position of its sample, int64.
        sample_units, record_units: names of units per sample and per record; ``None``: no units.
        margins: per sample, float64, NaN for samples that were not run; ``None``: the metric computes none.
    """

    metric_name: str
    index: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    names: list[str] = field(default_factory=list)
    ran: Array = field(default_factory=lambda: np.zeros(0, np.bool_))
    values: Array = field(default_factory=lambda: np.zeros(0))
    sample: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    sample_units: list[str] | None = None
    record_units: list[str] | None = None
    margins: Array | None = None


class ArrayRecordWriter(RecordsFile):
    """Writes the ``.npz`` file of a metric whose records are not one number per sample, at the end of the run."""

    _mode: ClassVar[dict[str, Any]] = {"mode": "wb"}

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
        self._columns = RecordArrays(metric_name)
        self._margins: list[Array] | None = [] if has_margins else None
        self._values: list[Array] = []
        self._samples: list[Array] = []
        self._ran: list[Array] = []

    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Take in one step; the record may have any form that metrics return."""
        count, start = len(batch.names), len(self._columns.names)
        good = () if record is None else range(count) if good is None else good
        ran = np.zeros(count, np.bool_)
        ran[np.asarray(good, np.intp)] = True
        own, margins = None, np.full(count, np.nan)
        if record is not None:
            record = record if isinstance(record, Records) else Records(record)
            positions = _positions(record, len(good))
            own = None if record.units is None else list(record.units)
            if record.margins is not None:
                margins[np.asarray(good, np.intp)] = record.margins
            self._check(record)
            self._values.append(record.values)
            self._samples.append(start + np.asarray(good, np.int64)[positions])
        before = sum(map(len, self._samples)) - (0 if record is None else len(record.values))
        columns = self._columns
        columns.sample_units = _extended(columns.sample_units, batch.units, start, count)
        if record is not None and len(record.values):
            columns.record_units = _extended(columns.record_units, own, before, len(record.values))
        columns.names += batch.names
        self._ran.append(ran)
        if self._margins is not None:
            self._margins.append(margins)

    def _check(self, record: Records) -> None:
        first = next((values for values in self._values if len(values)), record.values)
        if len(record.values) and (first.dtype, first.shape[1:]) != (record.values.dtype, record.values.shape[1:]):
            raise InputError(
                f"records of dtype {record.values.dtype} and shape {record.values.shape[1:]} each came after some of "
                f"dtype {first.dtype} and shape {first.shape[1:]}; keep one kind for all batches"
            )

    def _finish(self) -> None:
        columns = self._columns
        columns.index = self._positions(len(columns.names))
        columns.ran = np.concatenate([columns.ran, *self._ran])
        filled = [values for values in self._values if len(values)] or self._values[:1]
        if filled:
            columns.values = np.concatenate(filled)
        columns.sample = np.concatenate([columns.sample, *self._samples])
        if self._margins is not None:
            columns.margins = np.concatenate([np.zeros(0), *self._margins])
        write_arrays(columns, cast("IO[bytes]", self._file))


def _positions(record: Records, good: int) -> Array:
    """Return for each record the position of its sample among the good ones."""
    count = len(record.values) if np.ndim(record.values) else -1
    samples = np.arange(count) if record.samples is None else np.asarray(record.samples)
    inside = len(samples) == good if record.samples is None else not samples.size or _within(samples, good)
    fits = inside and len(samples) == count and not record.values.dtype.hasobject
    if not fits or (record.units is not None and len(record.units) != count):
        raise InputError(
            f"a record of dtype {record.values.dtype} and shape {record.values.shape} does not fit {good} samples; "
            "pass what the metric's update() returned"
        )
    return samples


def _within(samples: Array, good: int) -> bool:
    return bool(samples.dtype.kind in "iu" and samples.min() >= 0 and samples.max() < good)


def _extended(names: list[str] | None, more: list[str] | None, before: int, count: int) -> list[str] | None:
    """Append the names of units of a batch."""
    if (names is None) is not (more is None) and before and count:
        raise InputError("one batch has units and another does not; name them for all batches or none")
    return names if more is None else (names or []) + list(more)


# --------------------------------------------------------------------------------------------------------------- files


def write_arrays(columns: RecordArrays, file: IO[bytes]) -> None:
    """Write the columns: samples by index, records by sample, units by name."""
    order = np.argsort(columns.index, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    samples = place[columns.sample]
    by_sample = np.argsort(samples, kind="stable")
    arrays: dict[str, Array] = {
        "metric_name": _bytes(columns.metric_name),
        "index": columns.index[order],
        "ran": columns.ran[order],
        "values": columns.values[by_sample],
        "sample": samples[by_sample],
        **_texts("name", [columns.names[i] for i in order.tolist()]),
    }
    if columns.margins is not None:
        arrays["margin"] = columns.margins[order]
    named = (("sample_unit", columns.sample_units, order), ("record_unit", columns.record_units, by_sample))
    table = sorted({name for _, names, _ in named for name in names or ()})
    codes = {name: code for code, name in enumerate(table)}
    for key, names, rows in named:
        if names is not None:
            arrays |= _texts("unit", table)
            arrays[key] = np.array([codes[name] for name in names], np.int64)[rows]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", EPOCH), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_arrays(path: Path) -> RecordArrays:
    """Read a records file; raise DataError if it cannot be read, or is not a records file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return _columns(archive)
    except OSError as error:
        raise DataError(f"records file {path} cannot be read: {error.strerror or error}; check the path") from error
    except array_errors() as error:
        raise DataError(f"{path} is not a records file: {one_line(error)}; write the file again") from error


def _columns(archive: Any) -> RecordArrays:
    units = _from_texts(archive, "unit") if "unit" in archive else []

    def named(key: str) -> list[str] | None:
        return [units[code] for code in archive[key].tolist()] if key in archive else None

    found = RecordArrays(
        archive["metric_name"].tobytes().decode("utf-8", "surrogatepass"),
        archive["index"],
        _from_texts(archive, "name"),
        archive["ran"],
        archive["values"],
        archive["sample"],
        named("sample_unit"),
        named("record_unit"),
        archive["margin"] if "margin" in archive else None,  # noqa: SIM401 - an archive has no get()
    )
    count, records = len(found.index), len(found.values)
    lengths = [len(found.names), len(found.ran), count if found.sample_units is None else len(found.sample_units)]
    lengths.append(count if found.margins is None else len(found.margins))
    of_records = [len(found.sample), records if found.record_units is None else len(found.record_units)]
    if set(lengths) != {count} or set(of_records) != {records}:
        raise ValueError("its columns have different lengths")
    if records and not (found.sample.min() >= 0 and found.sample.max() < count):
        raise ValueError("a record has an unknown sample")
    return found


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def _texts(key: str, texts: Sequence[str]) -> dict[str, Array]:
    coded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return {
        key: np.frombuffer(b"".join(coded), np.uint8),
        f"{key}_ends": np.cumsum([len(text) for text in coded], dtype=np.int64),
    }


def _from_texts(archive: Any, key: str) -> list[str]:
    blob, ends = archive[key].tobytes(), archive[f"{key}_ends"].tolist()
    return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends], ends, strict=False)]
