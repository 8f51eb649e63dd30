"""Texts, or pairs of texts, with labels if known: ``.txt``, ``.tsv``, ``.csv``, ``.jsonl``, GLUE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.text.tables import (
    ENCODING,
    ENDINGS,
    NOT_TEXT,
    Row,
    Table,
    is_text,
    read_lines,
    read_table,
    rejected_line,
)

TEXT, LABEL = "text", "label"
"""First names of the columns, and of the keys in ``.jsonl``."""

PAIRS = (
    *(("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("question", "answer"), ("#1 String", "#2 String"), ("text_a", "text_b")),
    *(("text1", "text2"), ("query", "passage")),
)
"""Names of the two columns of pairs, including GLUE's, in order of precedence."""

TEXTS = (TEXT, "prompt", "sentence", "review", "content", "comment", "sms", "tweet", "utterance", "query", "question")
"""Names of the column of single texts."""

LABELS = (LABEL, "labels", "gold_label", "is_duplicate", "Quality", "class", "category", "sentiment", "intent")
"""Names of the column of labels."""

RATING, UNIT = "rating", "unit"
"""Names of the columns of numeric ratings, and of independent units, such as films."""

COLA = ("source", "label", "mark", "sentence")
"""Columns of CoLA's files, which have no column names."""

SPLITS = ("dev", "dev_matched", "val", "valid", "validation", "test")
"""Stems of the file to evaluate in a folder, in order of precedence."""

UNDECIDED = "-"
"""Label of lines on which annotators disagreed (SNLI, MNLI)."""


@dataclass(frozen=True)
class Columns:
    """Columns and format of files; ``None``: found by the usual names.

    Attributes:
        text, pair, label: names of columns. With only ``text``, texts are single.
        names: of all columns, if a file's first line has none.
        encoding: of the files.
        quoted: whether fields of a ``.tsv`` may be in double quotes.
    """

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    names: tuple[str, ...] = ()
    encoding: str = ENCODING
    quoted: bool = False


class Line(NamedTuple):
    """A text or a pair, a label (a class name or index; ``None``: unknown), and the name of the line.

    ``rating`` and ``unit`` are the values of these columns, if any.
    """

    text: str | tuple[str, str]
    label: str | int | None
    name: str
    rating: float | None = None
    unit: str | None = None


class Rated(NamedTuple):
    """A target with a rating: the correct class, and the rating by people."""

    label: str | int
    rating: float


def load_texts(path: Path, columns: Columns | None = None) -> ListDataset:
    """Load texts, or pairs, and their labels if known.

    - ``.tsv``, ``.csv``, ``.jsonl``, ``.json``: a table (:func:`~utils.datasets.text.tables.read_table`). Columns are
      given, or found by their usual names (:data:`PAIRS`, :data:`TEXTS`, :data:`LABELS`). CoLA's files are recognised.
    - ``.txt``: a text per line, no labels.
    - a table with a column ``rating`` of numbers next to the labels: targets are :class:`Rated`, and the data set's
      ``notes`` have ``rated``. With a column ``unit``: texts of one unit (a film, a person) are not independent.
    - a folder with a table of :data:`SPLITS`, such as one of GLUE's: that table. A folder with one table: that one.
      Otherwise its ``.txt`` files, sorted by name, no labels; other files are in ``rejected``.

    Empty lines are skipped. An invalid line (another number of fields, no text, no label if others have one, not text)
    is in ``rejected``. Labels stay as written, a class name or a class index; the model interprets them. Samples are
    strings, or tuples of two; names are ``file:line``. Raises DataError if the path has no usable data; the message has
    file, line and fix.
    """
    columns = columns or Columns()
    check_exists(path)
    if path.is_dir():
        file = _table_of(path)
        return _folder(path, columns) if file is None else load_texts(file, columns)
    if path.suffix.lower() == ".txt":
        return _dataset(*_plain(path, columns.encoding), [path])
    if path.suffix.lower() not in ENDINGS:
        formats = " ".join(ENDINGS)
        raise DataError(f"{path} is not a text file; pass one ending in .txt {formats}, or a folder of .txt files")
    names = columns.names
    table = read_table(path, columns=names, encoding=columns.encoding, quoted=columns.quoted, headless=_cola)
    return _dataset(*_of_table(table, columns), [path])


def _cola(first: Sequence[str]) -> Sequence[str]:
    """Return CoLA's columns for a line in its format: a source, 0 or 1, a mark or nothing, a sentence."""
    looks = len(first) == len(COLA) and first[1] in ("0", "1") and first[2] in ("", "*")
    return COLA if looks else ()


def text_columns(table: Table, columns: Columns) -> tuple[str, str | None]:
    """Return the columns of texts, and of second texts if any; raise DataError, with all columns, if there is none."""
    if columns.text is None:
        for one, two in PAIRS:
            first = table.column(None, (one,), "")
            second = table.column(columns.pair, (two,), "--pair_column")
            if first is not None and second is not None:
                return first, second
    text = table.column(columns.text, TEXTS, "--text_column")
    if text is None:
        raise DataError(
            f"{table.file}: the columns are {table.listed()}, and none has a usual name; set the column of texts with "
            "--text_column NAME, or, if the first line has no names, set all with --columns NAME NAME"
        )
    return text, None if columns.pair is None else table.column(columns.pair, (), "--pair_column")


def _of_table(table: Table, columns: Columns) -> tuple[list[Line], list[Rejected]]:
    if not table.rows:  # only column names, or no valid line
        return [], list(table.rejected)
    text, pair = text_columns(table, columns)
    label = table.column(columns.label, LABELS, "--label_column")
    labelled = label is not None and any(_has(row, label) for row in table.rows)
    rating, unit = (table.column(None, (name,), "") for name in (RATING, UNIT))
    lines, rejected = [], list(table.rejected)
    for row in table.rows:
        found = _line(table, row, text, pair, label if labelled else None)
        if isinstance(found, Line):
            found = _described(found, row, rating if labelled else None, unit)
        if isinstance(found, str):
            rejected.append(table.reject(row, found))
        else:
            lines.append(found)
    return lines, sorted(rejected, key=lambda one: int(one.path.name.rpartition(":")[2]))


def _has(row: Row, column: str) -> bool:
    value = row.values.get(column)
    return value is not None and value != ""


def _line(table: Table, row: Row, text: str, pair: str | None, label: str | None) -> Line | str:
    texts = []
    for column in (text, pair):
        value = "" if column is None else row.values.get(column)
        if not isinstance(value, str):
            return f"its {column!r} is {'missing' if value is None else 'not a text'}; correct the line"
        if column is not None and not value.strip():
            return f"its {column!r} is empty; write a text, or remove the line"
        texts.append(value)
    found: Any = None if label is None else row.values.get(label)
    found = found.strip() if isinstance(found, str) else found
    if label is not None and (found is None or found == ""):
        return f"no {label}, but other texts have one; label all of them, or none"
    if found == UNDECIDED:
        return f"its {label!r} is {shown_value(found)}: the annotators disagreed; remove the line"
    if isinstance(found, bool) or not isinstance(found, (str, int, type(None))):
        return f"{label} {shown_value(found)} must be a class name or a class index; correct it"
    sample = texts[0] if pair is None else (texts[0], texts[1])
    return Line(sample, found, f"{table.file.name}:{row.number}")


def _described(line: Line, row: Row, rating: str | None, unit: str | None) -> Line | str:
    number = None
    if rating is not None:
        value = row.values.get(rating)
        try:
            number = math.nan if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            return f"its {rating!r} is {shown_value(value)}, not a number; correct the line"
    own = None if unit is None else str(row.values.get(unit) or line.name)
    return line._replace(rating=number, unit=own)


def _plain(file: Path, encoding: str) -> tuple[list[Line], list[Rejected]]:
    lines, rejected = [], []
    for number, text in read_lines(file, encoding):
        if not is_text(text):
            rejected.append(rejected_line(file, number, NOT_TEXT.format(encoding.upper())))
        elif text.strip():
            lines.append(Line(text, None, f"{file.name}:{number}"))
    return lines, rejected


def _table_of(folder: Path) -> Path | None:
    """Return the table of a folder to evaluate; ``None`` if it has none."""
    tables = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in ENDINGS and file.is_file()]
    by_stem = {file.stem.lower(): file for file in reversed(tables)}
    named = next((by_stem[stem] for stem in SPLITS if stem in by_stem), None)
    texts = any(_is_plain(file) for file in folder.iterdir())
    if named is None and len(tables) > 1 and not texts:
        names = ", ".join(file.name for file in tables[:5])
        raise DataError(f"data folder {folder} has {len(tables)} tables ({names}); pass the path of one of them")
    return named if named is not None or texts or not tables else tables[0]


def _folder(path: Path, columns: Columns) -> ListDataset:
    entries = sorted(one for one in path.iterdir() if not one.name.startswith("."))
    files = [one for one in entries if _is_plain(one)]
    if not files:
        raise DataError(f"data folder {path} has no .txt file; add one, or pass a .tsv, .csv or .jsonl file")
    why = "not a .txt file; only these are read in a folder"
    lines, rejected = list[Line](), [Rejected(one, why) for one in entries if one not in files]
    for file in files:
        some, bad = _plain(file, columns.encoding)
        lines, rejected = lines + some, rejected + bad
    return _dataset(lines, rejected, files)


def _is_plain(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.is_file() and not path.name.startswith(".")


def _dataset(lines: list[Line], rejected: list[Rejected], files: list[Path]) -> ListDataset:
    if not lines and rejected:
        path, why = rejected[0]
        more = f"; {len(rejected)} lines, and none can be used" if len(rejected) > 1 else ""
        raise DataError(f"{path}: {why}{more}")
    if not lines:
        raise DataError(f"{files[0]} has no text; write at least one")
    labels = [line.label for line in lines] if lines[0].label is not None else None
    rated = labels is not None and lines[0].rating is not None
    targets = [Rated(line.label, line.rating) for line in lines] if rated else labels  # type: ignore[arg-type]
    units = None if lines[0].unit is None else [str(line.unit) for line in lines]
    names, texts = [line.name for line in lines], [line.text for line in lines]
    return ListDataset(
        texts, targets, names=names, units=units, files=files, rejected=rejected, notes={"rated": True} if rated else {}
    )
