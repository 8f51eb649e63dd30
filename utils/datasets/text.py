"""Texts, one per line or row, with their labels where there are any: ``.tsv``, ``.csv``, ``.jsonl`` and ``.txt``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine import DataError
from utils.datasets.base import ListDataset, Rejected

TEXT, LABEL = "text", "label"
"""Names of the columns, and of the keys in ``.jsonl``."""


class Line(NamedTuple):
    """A text, its label (a class name or index; ``None``: not known), and the number of its line."""

    text: str
    label: str | int | None
    number: int


def load_texts(path: Path) -> ListDataset:
    """Load texts, and their labels where they are known.

    - ``.tsv``: a line with the names of the columns, ``text`` and maybe ``label`` among them; fields lie between tabs,
      and quotes mean nothing.
    - ``.csv``: the same between commas; a field may stand in double quotes (RFC 4180).
    - ``.jsonl``: an object with ``text`` and maybe ``label`` per line.
    - ``.txt``: a text per line, no labels.
    - a folder: its ``.txt`` files, sorted by name, no labels; what else lies there is in ``rejected``.

    Files are UTF-8. Empty lines are passed over. Labels stay as they are written, a class name or a class index: what
    they mean is the model's to say. Names are ``file:line``.

    Raises:
        DataError: nothing usable at the path; the text names file, line and fix.
    """
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    if path.is_dir():
        return _folder(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} is no text file; give one ending in {' '.join(_READERS)}, or a folder of .txt files")
    return _dataset([(path, line) for line in reader(path)], [path], [])


def _folder(path: Path) -> ListDataset:
    entries = sorted(one for one in path.iterdir() if not one.name.startswith("."))
    files = [one for one in entries if _is_plain(one)]
    if not files:
        raise DataError(f"data folder {path} holds no .txt file; add one, or give a .tsv, .csv or .jsonl file")
    why = "not a .txt file, and only those are read in a folder"
    rejected = [Rejected(one, why) for one in entries if one not in files]
    return _dataset([(file, line) for file in files for line in _plain(file)], files, rejected)


def _is_plain(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.is_file()


def _dataset(lines: list[tuple[Path, Line]], files: list[Path], rejected: list[Rejected]) -> ListDataset:
    if not lines:
        raise DataError(f"{files[0]} holds no text; write at least one")
    labels = _labels(lines)
    names = [f"{file.name}:{line.number}" for file, line in lines]
    texts = [line.text for _, line in lines]
    return ListDataset(texts, labels, names=names, files=files, rejected=rejected)


def _labels(lines: list[tuple[Path, Line]]) -> list[str | int] | None:
    """Return the labels of all texts; ``None`` where none has one."""
    labels = [line.label for _, line in lines if line.label is not None]
    if labels and len(labels) != len(lines):
        file, line = next((file, line) for file, line in lines if line.label is None)
        raise DataError(f"{file}:{line.number}: no {LABEL}, and other texts have one; label all of them, or none")
    return labels or None


def _content(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from error


def _numbered(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty; only line feeds end one, other separators are legal in texts."""
    for number, line in enumerate(_content(file).replace("\r\n", "\n").split("\n"), start=1):
        if line.strip():
            yield number, line


def _plain(file: Path) -> list[Line]:
    return [Line(text, None, number) for number, text in _numbered(file)]


def _tab_separated(file: Path) -> list[Line]:
    return _table(file, [(number, line.split("\t")) for number, line in _numbered(file)])


def _comma_separated(file: Path) -> list[Line]:
    reader = csv.reader(io.StringIO(_content(file), newline=""), strict=True)
    rows = []
    try:
        for row in reader:
            if row:
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise DataError(f"{file}:{reader.line_num}: not CSV ({error}); put the text in double quotes") from error
    return _table(file, rows)


def _table(file: Path, rows: list[tuple[int, list[str]]]) -> list[Line]:
    """Return the rows below the one with the names of the columns."""
    if not rows:
        raise DataError(f"{file} is empty; write the columns' names ({TEXT}, {LABEL}) and a text per line")
    columns = [name.strip() for name in rows[0][1]]
    if columns.count(TEXT) != 1 or columns.count(LABEL) > 1:
        raise DataError(
            f"{file}:{rows[0][0]}: the columns are {', '.join(map(repr, columns))}; "
            f"name one of them {TEXT!r} and, where there are labels, one {LABEL!r}"
        )
    text, label = columns.index(TEXT), columns.index(LABEL) if LABEL in columns else None
    lines = []
    for number, row in rows[1:]:
        if len(row) != len(columns):
            raise DataError(
                f"{file}:{number}: {len(row)} fields, and there are {len(columns)} columns; correct the line"
            )
        found = None if label is None else row[label].strip()
        if found == "":
            raise DataError(f"{file}:{number}: the {LABEL} is empty; label all texts, or leave the column out")
        lines.append(Line(row[text], found, number))
    return lines


def _json_lines(file: Path) -> list[Line]:
    return [_json_line(line, number, file) for number, line in _numbered(file)]


def _json_line(line: str, number: int, file: Path) -> Line:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}:{number}: not JSON ({error}); write one object per line") from error
    if not isinstance(entry, dict) or not isinstance(entry.get(TEXT), str):
        raise DataError(f"{file}:{number}: not an object with a {TEXT!r} that is text; correct the line")
    label = entry.get(LABEL)
    if isinstance(label, bool) or not isinstance(label, (str, int, type(None))):
        raise DataError(f"{file}:{number}: {LABEL} {label!r} is neither a class name nor a class index; correct it")
    return Line(entry[TEXT], label, number)


_READERS: dict[str, Callable[[Path], list[Line]]] = {
    ".tsv": _tab_separated,
    ".csv": _comma_separated,
    ".jsonl": _json_lines,
    ".txt": _plain,
}
