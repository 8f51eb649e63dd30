"""Tables of texts: ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` files with named columns; invalid lines are rejected."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import nearest
from utils.datasets.base import Rejected

ENCODING = "utf-8"

ENDINGS = (".tsv", ".csv", ".jsonl", ".json")

NOT_TEXT = "not {} text; save the file as UTF-8, or set its encoding with --encoding"


class Row(NamedTuple):
    """Values by column (text; any type for JSON), and the number of the first line."""

    values: Mapping[str, Any]
    number: int


@dataclass(frozen=True)
class Table:
    """Content of a file.

    Attributes:
        columns: column names, in order; for JSON those of all objects.
        rows: the valid lines. rejected: the invalid ones, named ``file:line``.
    """

    file: Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    rejected: tuple[Rejected, ...] = ()

    def column(self, given: str | None, known: Sequence[str], flag: str) -> str | None:
        """Return the column given by a flag, or else the first existing one of the ``known`` names, in any case.

        It is spelled as in the file; ``None`` if nothing is given and none is found. Raises DataError, which names the
        flag, if the given column does not exist.
        """
        if given is None:
            low = {name.lower(): name for name in reversed(self.columns)}
            return next((low[name.lower()] for name in known if name.lower() in low), None)
        if given not in self.columns:
            near = nearest(given, self.columns)
            raise DataError(
                f"{self.file}: no column {given!r} ({flag}); the columns are {self.listed()}"
                + (f"; did you mean {near!r}?" if near is not None else "; use one of them")
            )
        return given

    def listed(self) -> str:
        """Return the names of the first columns for a message."""
        names = ", ".join(map(repr, self.columns[:_LISTED]))
        return names + (f" and {len(self.columns) - _LISTED} more" if len(self.columns) > _LISTED else "")

    def reject(self, row: Row, why: str) -> Rejected:
        """Return a row as rejected."""
        return rejected_line(self.file, row.number, why)


_LISTED = 12


def rejected_line(file: Path, number: int, why: str) -> Rejected:
    """Return a line of a file as rejected."""
    return Rejected(Path(f"{file}:{number}"), why)


def read_table(
    file: Path,
    *,
    columns: Sequence[str] = (),
    encoding: str = ENCODING,
    quoted: bool = False,
    headless: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Table:
    """Read a table in a format that follows from the file's ending.

    - ``.tsv``: fields are separated by tabs, and quotes have no meaning unless ``quoted``, as pandas writes them.
    - ``.csv``: fields are separated by commas and may be in double quotes (RFC 4180), also over several lines.
    - ``.jsonl``: an object per line. ``.json``: a list of objects; a row's number is its place, from 1.

    Lines end with a line feed, optionally preceded by a carriage return. Empty ones are skipped. A byte order mark
    overrides the encoding. If the first line has no column names, they are ``columns``, or what ``headless`` returns
    for that line; not for JSON. Raises DataError if the file cannot be read, is empty, or has another ending or a
    duplicate column name, and ConfigError if the encoding is unknown.
    """
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"{file} is not a table; pass a file ending in {' '.join(ENDINGS)}")
    if ending == ".json":
        return _objects(file, _json_list(file, encoding))
    lines = read_lines(file, encoding)
    if ending == ".jsonl":
        return _objects(file, ((number, _json(line)) for number, line in lines if line.strip()))
    rows = _quoted(lines, "," if ending == ".csv" else "\t") if quoted or ending == ".csv" else _tabbed(lines)
    return _fields(file, rows, tuple(columns), headless, encoding)


def read_lines(file: Path, encoding: str = ENCODING) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers, from 1, without line ends.

    An invalid byte becomes half a character (a surrogate), which :func:`is_text` detects. Raises DataError if the file
    cannot be read, and ConfigError if the encoding is unknown.
    """
    data = content_of(file)
    try:
        codecs.lookup(encoding)
        "".encode(encoding)  # fails for hex and other codecs that are not for text
    except LookupError as error:
        raise ConfigError(f"--encoding {encoding!r} is unknown; use utf-8, latin-1 or another codec name") from error
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), encoding)
    try:
        text = data.decode(encoding, "surrogateescape" if "\n".encode(encoding) == b"\n" else "strict")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start}: {NOT_TEXT.format(encoding.upper())}") from error
    except UnicodeError as error:  # from codecs such as idna, without a position
        raise DataError(f"{file}: {NOT_TEXT.format(encoding.upper())}") from error
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        yield number, line.removesuffix("\r")


def utf8_or_latin1(file: Path) -> str:
    """Return the text of a file in UTF-8 or else Latin-1; raise DataError if it cannot be read."""
    data = content_of(file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def content_of(file: Path) -> bytes:
    """Return the bytes of a file; raise DataError if it cannot be read."""
    try:
        return read_regular(file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from error


_MARKS = (
    *((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)
"""Byte order marks; UTF-32's starts with UTF-16's, so it comes first."""


def is_text(text: str) -> bool:
    """Return whether a text has no surrogate, neither from an undecoded byte nor from JSON."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _tabbed(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str] | str]]:
    for number, line in lines:
        if line.strip():
            yield number, line.split("\t")


def _quoted(lines: Iterable[tuple[int, str]], between: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the rows of a CSV file with their first line number; an invalid row is replaced by the reason."""
    reader = csv.reader((line + "\n" for _, line in lines), delimiter=between, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = reader.line_num
            if "field larger" in str(error):
                most = csv.field_size_limit()
                yield number, f"a field of more than {most} characters; close its quote, or split the text"
                continue
            lost = f", up to line {last}" if last > number else ""
            yield number, f"not CSV ({error}{lost}); put the text in double quotes, and double those within it"
            continue
        if row and any(field.strip() for field in row):
            yield number, row


def _fields(
    file: Path,
    rows: Iterator[tuple[int, list[str] | str]],
    columns: tuple[str, ...],
    headless: Callable[[Sequence[str]], Sequence[str]] | None,
    encoding: str,
) -> Table:
    """Return the rows as a table; the first has the names, unless ``columns`` or ``headless`` give them."""
    found, rejected = list[Row](), list[Rejected]()
    given = bool(columns)
    for number, row in rows:
        if isinstance(row, str):
            rejected.append(rejected_line(file, number, row))
            continue
        if not columns:
            columns = tuple(headless(row)) if headless is not None else ()
            if not columns:
                columns = tuple(name.strip() for name in row)
                if not all(map(is_text, columns)):
                    raise DataError(f"{file}:{number}: {NOT_TEXT.format(encoding.upper())}")
                twice = next((name for name in columns if columns.count(name) > 1), None)
                if twice is not None:
                    where = f"{file}:{number}"
                    raise DataError(f"{where}: column {twice!r} occurs twice; give each column a different name")
                continue
        if len(row) != len(columns):
            why = f"{len(row)} fields, expected {len(columns)}; correct the line"
            rejected.append(rejected_line(file, number, why))
        elif not all(map(is_text, row)):
            rejected.append(rejected_line(file, number, NOT_TEXT.format(encoding.upper())))
        else:
            found.append(Row(dict(zip(columns, row, strict=True)), number))
    if not columns or (given and not found and not rejected):
        raise DataError(f"{file} is empty; write the column names in the first line, and a row in each further line")
    return Table(file, columns, tuple(found), tuple(rejected))


def _objects(file: Path, entries: Iterable[tuple[int, Any]]) -> Table:
    """Return objects as a table; lines that are not JSON come as exceptions."""
    found, rejected, columns = list[Row](), list[Rejected](), dict[str, None]()
    for number, entry in entries:
        if isinstance(entry, Exception):
            rejected.append(rejected_line(file, number, f"not JSON ({entry}); write one object per line"))
        elif not isinstance(entry, dict):
            rejected.append(rejected_line(file, number, "not an object; write {...} with the columns by name"))
        elif not all(map(is_text, (value for value in entry.values() if isinstance(value, str)))):
            rejected.append(rejected_line(file, number, "has half a character, or is not UTF-8 text; correct it"))
        else:
            columns |= dict.fromkeys(entry)
            found.append(Row(entry, number))
    if not found and not rejected:
        raise DataError(f"{file} is empty; write an object per line, with the columns by name")
    if not found and len(rejected) > 1:
        raise DataError(f"{rejected[0].path}: {rejected[0].reason}; {len(rejected)} lines, and none can be used")
    return Table(file, tuple(columns), tuple(found), tuple(rejected))


def _json(line: str) -> Any:
    """Return the value of a line of JSON, or the exception if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def _json_list(file: Path, encoding: str) -> list[tuple[int, Any]]:
    """Return the entries of a JSON list with their places; raise DataError if the file is not such a list."""
    text = "\n".join(line for _, line in read_lines(file, encoding))
    found = _json(text)
    if isinstance(found, Exception):
        raise DataError(f"{file}: not JSON ({found}); write a list of objects, or one per line into a .jsonl file")
    if not isinstance(found, list):
        raise DataError(f"{file}: not a list; write a list of objects, or one per line into a .jsonl file")
    return list(enumerate(found, start=1))


__all__ = [
    *("ENCODING", "ENDINGS", "NOT_TEXT", "Row", "Table", "is_text", "read_lines", "read_table", "rejected_line"),
    *("content_of", "utf8_or_latin1"),
]
