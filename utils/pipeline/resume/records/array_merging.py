"""Merge sorted ``.npz`` records files into one, window by window, without holding all records in memory.

Every file has its samples in the order of the data set. A window has all samples up to an index that no file exceeds in
its block; blocks have a fixed number of bytes. In memory are one block per file, and the names of the units.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import one_line
from utils.pipeline.resume.records.stored_arrays import GrowingArrays, StoredArrays

WINDOW_BYTES = 1 << 23
"""Bytes of the blocks of all files together, about; a file's block has at least one sample with all its records."""

_INT64 = np.dtype(np.int64)
_BYTES = np.dtype(np.uint8)
_DTYPES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(("name", "metric_name", "unit"), _BYTES),
    **dict.fromkeys(("index", "sample", "name_ends", "unit_ends", "sample_unit", "record_unit"), _INT64),
    "ran": np.dtype(np.bool_),
    "margin": np.dtype(np.float64),
}
"""Of all arrays except the values."""
_OF_SAMPLES = ("index", "ran", "margin", "sample_unit")
_OF_RECORDS = ("values", "record_unit")


@dataclass(slots=True, eq=False)
class _Block:
    """Some consecutive samples of a file with their records.

    Attributes:
        columns: by name, of samples and of records; units as positions in the merged table.
        names: of the samples, UTF-8. sample: per record its sample, counted from the block's first.
    """

    columns: dict[str, Array]
    names: list[bytes]
    sample: Array

    def __len__(self) -> int:
        return len(self.names)

    def split(self, count: int) -> tuple[_Block, _Block]:
        """Return the first ``count`` samples, and the rest."""
        at = int(np.searchsorted(self.sample, count))
        ends = {name: at if name in _OF_RECORDS else count for name in self.columns}
        first = {name: column[: ends[name]] for name, column in self.columns.items()}
        rest = {name: column[ends[name] :] for name, column in self.columns.items()}
        head = _Block(first, self.names[:count], self.sample[:at])
        return head, _Block(rest, self.names[count:], self.sample[at:] - count)


class _Reader:
    """A records file, read in blocks."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        with self._reported():
            self.arrays = arrays = StoredArrays(file)
            self.metric_name = arrays.read("metric_name").tobytes()
            self.units = _texts(arrays, "unit") if "unit" in arrays else []
            self.samples, self.records = arrays.length("index"), arrays.length("values")
            self.ran = bool(arrays.read("ran").any())
            columns = {name: self.samples for name in ("ran", "name_ends", "margin", "sample_unit") if name in arrays}
            columns |= {name: self.records for name in ("sample", "record_unit") if name in arrays}
            if any(arrays.length(name) != count for name, count in columns.items()):
                raise ValueError("its columns have different lengths")
            if any(name in arrays and arrays.form(name) != (dtype, ()) for name, dtype in _DTYPES.items()):
                raise ValueError("its columns have other dtypes")
            total = sum(arrays.form(name)[0].itemsize * arrays.length(name) for name in columns)
            self._bytes = total + arrays.length("name") + self.records * _row_bytes(arrays)
        self._next = self._next_record = 0
        self._codes = np.zeros(0, np.int64)
        self.block = _Block({}, [], np.zeros(0, np.int64))

    def _reported(self) -> _Reported:
        return _Reported(self.path)

    def merged_units(self, table: dict[str, int]) -> None:
        """Take the positions of all units in the merged table."""
        self._codes = np.array([table[name] for name in self.units], np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether all samples are in the block, or were taken from it."""
        return self._next >= self.samples

    def fill(self, most: int) -> None:
        """Read the next block, of about ``most`` bytes, if the last one was used up."""
        if len(self.block) or self.exhausted:
            return
        with self._reported():
            count = max(1, int(most * self.samples // max(1, self._bytes)))
            self.block = self._read(self._next, min(self._next + count, self.samples))

    def _read(self, start: int, stop: int) -> _Block:
        arrays = self.arrays
        first, last = self._next_record, self._first_record(stop)
        ends = arrays.read("name_ends", max(0, start - 1), stop).tolist()
        ends = [0, *ends] if start == 0 else ends
        blob = arrays.read("name", ends[0], ends[-1]).tobytes()
        names = [blob[a - ends[0] : b - ends[0]] for a, b in pairwise(ends)]
        columns = {name: arrays.read(name, start, stop) for name in _OF_SAMPLES if name in arrays}
        columns |= {name: arrays.read(name, first, last) for name in _OF_RECORDS if name in arrays}
        for name in ("sample_unit", "record_unit"):
            if name in columns:
                columns[name] = self._codes[columns[name]]
        sample = arrays.read("sample", first, last) - start
        if len(sample) and not (sample[0] >= 0 and sample[-1] < stop - start and (np.diff(sample) >= 0).all()):
            raise ValueError("its records are not in the order of its samples")
        if (np.diff(columns["index"]) <= 0).any():
            raise ValueError("its samples are not in the order of the data set")
        self._next, self._next_record = stop, last
        return _Block(columns, names, sample)

    def _first_record(self, sample: int) -> int:
        """Return the first record that belongs to this sample or a later one."""
        low, high = self._next_record, self.records
        if sample >= self.samples:
            return high
        while low < high:
            middle = (low + high) // 2
            if int(self.arrays.read("sample", middle, middle + 1)[0]) < sample:
                low = middle + 1
            else:
                high = middle
        return low


class _Reported:
    """Turns errors of a damaged file into a DataError of one line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        kinds = (ValueError, KeyError, IndexError, EOFError, TypeError, zipfile.BadZipFile)
        if isinstance(error, kinds):
            raise DataError(f"{self._path} is not a records file: {one_line(error)}; write the file again") from error


def _row_bytes(arrays: StoredArrays) -> int:
    dtype, shape = arrays.form("values")
    return int(dtype.itemsize * np.prod(shape, dtype=np.int64))


def _texts(arrays: StoredArrays, name: str) -> list[str]:
    blob, ends = arrays.read(name).tobytes(), arrays.read(f"{name}_ends").tolist()
    return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends], ends, strict=False)]


def merge_array_files(parts: Sequence[Path], path: Path, folder: Path) -> list[str]:
    """Merge records files, each of at least one process, into ``path``.

    Returns the names of their metrics if they are not of one run, and then writes nothing; else an empty list.

    Args:
        parts: in the order of the processes. folder: empty, for temporary files as large as the merged file.

    Raises:
        DataError: a file is not a records file. OSError: a file cannot be read or written.
    """
    with ExitStack() as stack:
        readers = [_Reader(part, stack.enter_context(part.open("rb"))) for part in parts]
        filled = [one for one in readers if one.samples] or readers[:1]
        recorded = [one for one in readers if one.records]
        if not _of_one_run(readers, filled, recorded):
            return sorted({one.metric_name.decode("utf-8", "surrogatepass") for one in readers})
        table = sorted({name for one in readers for name in one.units})
        codes = {name: code for code, name in enumerate(table)}
        for one in readers:
            one.merged_units(codes)
        values = next(iter([*recorded, *(one for one in readers if one.ran), *readers]))
        grouped = "sample_unit" in filled[0].arrays, bool(recorded) and "record_unit" in recorded[0].arrays
        forms = _forms(values.arrays.form("values"), "margin" in readers[0].arrays, *grouped)
        with GrowingArrays(folder, forms) as merged, path.open("wb") as file:
            merged.append("metric_name", np.frombuffer(readers[0].metric_name, np.uint8))
            if any(grouped):
                coded = [name.encode("utf-8", "surrogatepass") for name in table]
                merged.append("unit", np.frombuffer(b"".join(coded), np.uint8))
                merged.append("unit_ends", np.cumsum([len(text) for text in coded], dtype=np.int64))
            _append_windows(readers, merged)
            merged.write(file)
    return []


def _forms(
    values: tuple[np.dtype[Any], tuple[int, ...]], margins: bool, of_samples: bool, of_records: bool
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return the forms of the merged arrays, in the order of the file."""
    names = ["metric_name", "index", "ran", "values", "sample", "name", "name_ends"]
    names += ["margin"] if margins else []
    names += ["unit", "unit_ends"] if of_samples or of_records else []
    names += [*(["sample_unit"] if of_samples else []), *(["record_unit"] if of_records else [])]
    return {name: values if name == "values" else (_DTYPES[name], ()) for name in names}


def _of_one_run(readers: list[_Reader], filled: list[_Reader], recorded: list[_Reader]) -> bool:
    """Return whether files have one metric, the same kinds of units (if filled), and records of one kind."""
    metrics = {one.metric_name for one in readers}
    units = {"sample_unit" in one.arrays for one in filled}
    margins = {"margin" in one.arrays for one in readers}
    kinds = {(*one.arrays.form("values"), "record_unit" in one.arrays) for one in recorded}
    return max(len(metrics), len(units), len(margins), len(kinds)) == 1


def _append_windows(readers: Sequence[_Reader], merged: GrowingArrays) -> None:
    """Append all samples and their records in the order of the data set."""
    done = end = 0
    for window in _windows(readers):
        order = np.argsort(np.concatenate([one.columns["index"] for one in window]), kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        starts = np.cumsum([0, *map(len, window)])
        sample = place[np.concatenate([one.sample + start for one, start in zip(window, starts, strict=False)])]
        by_sample = np.argsort(sample, kind="stable")
        for name in _OF_SAMPLES:
            if all(name in one.columns for one in window):
                merged.append(name, np.concatenate([one.columns[name] for one in window])[order])
        with_records = [one for one in window if len(one.sample)]
        for name in _OF_RECORDS if with_records else ():
            if all(name in one.columns for one in with_records):
                merged.append(name, np.concatenate([one.columns[name] for one in with_records])[by_sample])
        merged.append("sample", done + sample[by_sample])
        names = [name for one in window for name in one.names]
        names = [names[i] for i in order.tolist()]
        merged.append("name", np.frombuffer(b"".join(names), np.uint8))
        ends = end + np.cumsum([len(name) for name in names], dtype=np.int64)
        merged.append("name_ends", ends)
        done, end = done + len(order), int(ends[-1])


def _windows(readers: Sequence[_Reader]) -> Iterator[list[_Block]]:
    """Yield the samples of all files that come before those not read yet."""
    most = WINDOW_BYTES // max(1, len(readers))
    while True:
        for one in readers:
            one.fill(most)
        active = [one for one in readers if len(one.block)]
        if not active:
            return
        limits = [int(one.block.columns["index"][-1]) for one in active if not one.exhausted]
        window = []
        for one in active:
            index = one.block.columns["index"]
            count = int(np.searchsorted(index, min(limits), "right")) if limits else len(index)
            if count:
                head, one.block = one.block.split(count)
                window.append(head)
        yield window
