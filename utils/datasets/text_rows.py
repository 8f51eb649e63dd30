"""Rows of a file of text by their columns' names: ``.tsv``, ``.csv`` and ``.jsonl``; a bad row costs that row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from utils.datasets.base import Rejected

SUFFIXES = (".tsv", ".csv", ".jsonl", ".txt")


class Row(NamedTuple):
    """Values by column, text (of ``.jsonl`` what JSON says), and the number of the line."""

    values: dict[str, Any]
    number: int


class Rows(NamedTuple):
    """The rows of a file, the names of its columns in order, and the rows that cannot be read."""

    rows: list[Row]
    columns: list[str]
    rejected: list[Rejected]


def content_of(file: Path) -> str:
    """Return a file's text, UTF-8, without a byte order mark, its lines ended by line feeds.

    Raises:
        DataError: it cannot be read, or is no UTF-8.
    """
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}; check the path") from error


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty with their numbers from 1; only line feeds end one."""
    for number, line in enumerate(content_of(file).split("\n"), start=1):
        if line.strip():
            yield number, line


def tab_separated(file: Path, columns: Sequence[str] | None = None, *, more: bool = False) -> Rows:
    """Return rows between tabs, where quotes mean nothing.

    Args:
        file: to be read. columns: their names; ``None``: the first line has them. more: fields beyond them are nothing.
    """
    return _table([(number, line.split("\t")) for number, line in lines_of(file)], file, columns, more)


def comma_separated(file: Path) -> Rows:
    """Return rows between commas; a field may stand in double quotes (RFC 4180). The first row has the names.

    Raises:
        DataError: quotes are not closed, so no row can be told from the next.
    """
    reader = csv.reader(io.StringIO(content_of(file), newline=""), strict=True)
    found = []
    try:
        for row in reader:
            if row:
                found.append((reader.line_num, row))
    except csv.Error as error:
        raise DataError(f"{file}:{reader.line_num}: not CSV ({error}); put the text in double quotes") from error
    return _table(found, file, None, False)


def _table(lines: Sequence[tuple[int, list[str]]], file: Path, columns: Sequence[str] | None, more: bool) -> Rows:
    if not lines:
        raise DataError(f"{file} is empty; write a row at least")
    names = [name.strip() for name in lines[0][1]] if columns is None else list(columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{file}:{lines[0][0]}: two columns are called {twice!r}; give each a name of its own")
    rows, rejected = [], []
    for number, fields in lines[columns is None :]:
        if len(fields) < len(names) or (len(fields) > len(names) and not more):
            why = f"{len(fields)} fields, and there are {len(names)} columns"
            rejected.append(Rejected(place(file, number), why))
            continue
        rows.append(Row(dict(zip(names, fields, strict=False)), number))
    return Rows(rows, names, rejected)


def json_lines(file: Path) -> Rows:
    """Return the objects of a file with one per line; columns are the keys of all of them."""
    rows, rejected, columns = [], [], dict[str, None]()
    for number, line in lines_of(file):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            rejected.append(Rejected(place(file, number), f"not JSON ({error})"))
            continue
        if not isinstance(entry, dict):
            rejected.append(Rejected(place(file, number), "not a JSON object"))
            continue
        columns.update(dict.fromkeys(entry))
        rows.append(Row(entry, number))
    return Rows(rows, list(columns), rejected)


def place(file: Path, number: int) -> Path:
    """Return how a report names a line of a file."""
    return Path(f"{file}:{number}")


def named_rows(file: Path) -> Rows:
    """Return the rows of a file whose columns have names, read as its name's ending says.

    Raises:
        DataError: it has another ending, or nothing can be read.
    """
    ending = file.suffix.lower()
    if ending == ".jsonl":
        return json_lines(file)
    if ending == ".csv":
        return comma_separated(file)
    if ending in (".tsv", ".txt"):
        return tab_separated(file)
    raise DataError(f"{file} is no table of texts; give one ending in {', '.join(SUFFIXES[:3])}")
