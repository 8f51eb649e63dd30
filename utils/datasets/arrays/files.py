"""Read arrays by name from one file: ``.npz``, ``.npy``, ``.csv``, ``.tsv``."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from engine import Array, DataError
from utils.arrays import read_npy, read_npz

TABLES = (".csv", ".tsv")

SUFFIXES = (".npz", ".npy", *TABLES)
"""File name endings that are read."""

ONLY = ""
"""Name of an array whose file does not name it."""

EXPECTED = "expected"
"""Name, or folder in names, of expected arrays."""

UNITS = "units"
"""Name of the array with the unit of each sample: integers or texts."""

LABEL = "label"
"""Name of the expected classes in a table."""


def read_arrays(file: Path, names: Collection[str]) -> dict[str, Array]:
    """Return the arrays of a file by name; ``names`` are those that a table's columns may belong to.

    ``.npy`` has one array, called :data:`ONLY`. The columns of a table are float64 N; consecutive ``NAME/0``,
    ``NAME/1``, ... of a name are one array, N x K. All columns without such a name are one array, called :data:`ONLY`,
    N x K or N for a single one.

    Raises:
        DataError: the file cannot be read or has another ending, an array does not hold numbers, or a cell is not one.
    """
    suffix = file.suffix.lower()
    if suffix == ".npz":
        found = read_npz(file, fix="write arrays of numbers with np.savez", fix_single="give it the ending .npy")
    elif suffix == ".npy":
        found = {ONLY: read_npy(file)}
    elif suffix in SUFFIXES:
        found = _table(file, names, "\t" if suffix == ".tsv" else ",")
    else:
        raise DataError(f"{file}: ending {suffix!r} is not one of {', '.join(SUFFIXES)}; save it with np.savez")
    for name, array in found.items():
        if array.dtype.kind not in ("fiubU" if name == UNITS else "fiub"):
            what = f"entry {name!r}" if name else "its array"
            raise DataError(f"{file}: {what} has dtype {array.dtype}; save numbers, such as array.astype(np.float32)")
    return found


def _table(file: Path, names: Collection[str], delimiter: str) -> dict[str, Array]:
    """Return the columns of a table as arrays; the first row is a header unless all of its cells are numbers."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets write a mark before the first name
            reader = csv.reader(stream, delimiter=delimiter)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read ({reason}); give a table in UTF-8") from error
    header = rows.pop(0)[1] if rows and not all(map(_is_number, rows[0][1])) else None
    if not rows:
        raise DataError(f"{file} has no rows; write one per sample")
    columns = [name.strip() for name in header] if header else [f"{ONLY}/{i}" for i in range(len(rows[0][1]))]
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{file}: two columns are called {twice!r}; rename one")
    values = np.array([_cells(file, line, row, columns) for line, row in rows], np.float64)
    return _grouped(columns, values, names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _cells(file: Path, line: int, row: Sequence[str], columns: Sequence[str]) -> list[float]:
    if len(row) != len(columns):
        raise DataError(f"{file}:{line}: {len(row)} cells for {len(columns)} columns; correct the row")
    cells = []
    for name, cell in zip(columns, row, strict=True):
        value = float(cell) if _is_number(cell) else math.nan
        if not math.isfinite(value):
            where = f"column {name!r}" if not name.startswith(f"{ONLY}/") else f"column {int(name[1:]) + 1}"
            raise DataError(f"{file}:{line}: {where}: {cell!r} is not a finite number; correct the cell")
        cells.append(value)
    return cells


def _grouped(columns: Sequence[str], values: Array, names: Collection[str]) -> dict[str, Array]:
    """Return the columns of each name as N, or N x K if they are numbered; all others together."""
    found: dict[str, list[int]] = {}
    for place, column in enumerate(columns):
        plain = re.sub(r"/\d+$", "", column)
        name = column if column in names else plain if plain in names else ONLY
        found.setdefault(name, []).append(place)
    return {
        name: values[:, places[0]] if len(places) == 1 and name in (ONLY, columns[places[0]]) else values[:, places]
        for name, places in found.items()
    }


def whole_numbers(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of a table with those of whole numbers as int64, as classes are."""
    whole = {name: np.rint(array) for name, array in arrays.items()}
    most = 2.0**53  # from here on not every integer is a float64
    return {
        name: whole[name].astype(np.int64)
        if np.array_equal(whole[name], array) and (abs(array) < most).all()
        else array
        for name, array in arrays.items()
    }
