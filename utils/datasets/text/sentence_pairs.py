"""Pairs of sentences with similarity ratings: named columns, STS-B's two layouts, SICK; or single sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.text.tables import Row, Table, is_text, read_lines, read_table, rejected_line

FIRST = ("sentence1", "sentence_a", "text1", "text_a", "first", "query", "sentence", "text")
SECOND = ("sentence2", "sentence_b", "text2", "text_b", "second", "passage")
SCORE = ("score", "similarity", "relatedness_score", "gold", "rating", "label")
"""Accepted column names, in any case; others are set by ``--columns``."""

STS_COLUMNS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")
"""Columns of the STS benchmark's own files (``sts-dev.csv``), which are tab-separated without column names."""

SENTENCES = "sentences"
"""Key of the note with all sentences, for data sets of single sentences, each compared with all others."""


class SentencePair(NamedTuple):
    """Two sentences to compare; ``second`` is ``None`` to search the nearest of all others."""

    first: str
    second: str | None


def load_sentences(path: Path, columns: Sequence[str] = ()) -> ListDataset:
    """Load pairs of sentences, with scores if all rows have one; or single sentences.

    - ``.tsv``, ``.csv``, ``.jsonl`` with named columns, such as GLUE's STS-B (``sentence1``, ``sentence2``, ``score``)
      and SICK's (``sentence_A``, ``sentence_B``, ``relatedness_score``; ``.txt``).
    - STS benchmark's own files, ``sts-dev.csv``: tabs, no column names.
    - one column of text, or ``.txt`` with a sentence per line: single sentences.
    - a folder: the first of ``sts-dev.csv``, ``dev.tsv``, ``SICK.txt`` and other tables in it.

    ``columns`` names the columns of the first text, and optionally of the second and the score. A row without text or
    with an invalid score is in ``rejected``. Names are ``file:line``. Raises DataError, with file and fix, if the path
    has no usable data.
    """
    check_exists(path)
    file = _table_in(path) if path.is_dir() else path
    plain = file.suffix.lower() == ".txt" and not columns
    if plain and not {name.strip().lower() for name in _start(file)} & set(SECOND):  # SICK's has column names
        return _alone(*_lines(file), file)
    found = _read(file)
    first, second, score = _chosen(found, columns, file)
    rejected, pairs = list(found.rejected), list[tuple[SentencePair, float | None, int]]()
    for row in found.rows:
        reason, pair, rating = _pair(row, first, second, score)
        if reason:
            rejected.append(found.reject(row, reason))
        else:
            pairs.append((pair, rating, row.number))
    if not pairs:
        why = f"; line {rejected[0].path.name.rpartition(':')[2]}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file} has no sentence that can be used{why}; correct it")
    if second is None:
        return _alone([(pair.first, number) for pair, _, number in pairs], rejected, file)
    ratings = None if score is None else [rating for _, rating, _ in pairs]
    names = [f"{file.name}:{number}" for _, _, number in pairs]
    return ListDataset([pair for pair, _, _ in pairs], ratings, names=names, files=[file], rejected=rejected)


def pairs_of(texts: Sequence[str]) -> ListDataset:
    """Return texts from the command line: two are a pair, more are single sentences.

    Raises ConfigError if there are fewer than two, or one is empty.
    """
    if not all(text.strip() for text in texts):
        raise ConfigError("--text: a sentence is empty; write it in quotes")
    if len(texts) < 2:
        raise ConfigError("one sentence cannot be compared; pass two, or a file of sentences")
    if len(texts) == 2:
        return ListDataset([SentencePair(*texts)], names=["text"])
    sentences = [SentencePair(text, None) for text in texts]
    return ListDataset(sentences, names=[f"text {i + 1}" for i in range(len(texts))], notes={SENTENCES: list(texts)})


def _table_in(folder: Path) -> Path:
    known = ("sts-test.csv", "sts-dev.csv", "dev.tsv", "SICK.txt", "SICK_test_annotated.txt")
    files = [folder / name for name in known if (folder / name).is_file()]
    endings = (".tsv", ".csv", ".jsonl", ".txt")
    files += sorted(one for one in folder.iterdir() if one.suffix.lower() in endings and one.is_file())
    if not files:
        raise DataError(f"data folder {folder} has no .tsv, .csv, .jsonl or .txt file; pass a file of pairs")
    return files[0]


def _start(file: Path) -> list[str]:
    """Return the tab-separated fields of the first non-empty line."""
    return next((line.split("\t") for _, line in read_lines(file) if line.strip()), [])


def _lines(file: Path) -> tuple[list[tuple[str, int]], list[Rejected]]:
    """Return the non-empty lines of a ``.txt`` with their numbers, and those that are not text."""
    lines = [(line.strip(), number) for number, line in read_lines(file) if line.strip()]
    wrong = [number for text, number in lines if not is_text(text)]
    bad = [rejected_line(file, number, "not UTF-8 text; save the file as UTF-8") for number in wrong]
    return [line for line in lines if is_text(line[0])], bad


def _read(file: Path) -> Table:
    """Read a table; the STS benchmark's own files are recognised by their fields, and have tabs with any ending."""
    start = _start(file) if file.suffix.lower() in (".csv", ".tsv", ".txt") else []
    if len(start) >= len(STS_COLUMNS) and _number(start[STS_COLUMNS.index("score")]) is not None:
        return _tabbed(file, STS_COLUMNS)
    if file.suffix.lower() == ".txt" or (file.suffix.lower() == ".csv" and len(start) > 1 and "," not in start[0]):
        return _tabbed(file, None)
    return read_table(file)


def _tabbed(file: Path, columns: Sequence[str] | None) -> Table:
    """Read tab-separated fields; ``None``: the first line has the names. Fields beyond the columns are sources."""
    rows, rejected = list[Row](), list[Rejected]()
    for number, line in read_lines(file):
        fields = line.split("\t")
        if not line.strip():
            continue
        if columns is None:
            columns = [field.strip() for field in fields]
        elif len(fields) < len(columns):
            rejected.append(rejected_line(file, number, f"{len(fields)} fields, expected {len(columns)}"))
        elif not is_text(line):
            rejected.append(rejected_line(file, number, "not UTF-8 text; save the file as UTF-8"))
        else:
            rows.append(Row(dict(zip(columns, fields, strict=False)), number))
    return Table(file, tuple(columns or ()), tuple(rows), tuple(rejected))


def _chosen(found: Table, columns: Sequence[str], file: Path) -> tuple[str, str | None, str | None]:
    """Return the names of the columns with the first text, the second and the score."""
    if columns:
        given = [*(found.column(name, (), "--columns") for name in columns), None, None]
        return columns[0], given[1], given[2]
    first, second, score = (found.column(None, names, "--columns") for names in (FIRST, SECOND, SCORE))
    if first is None:
        listed = found.listed()
        raise DataError(f"{file}: none of its columns {listed} is a text column; pass --columns TEXT1 TEXT2 SCORE")
    return first, second, score if second is not None else None


def _pair(row: Row, first: str, second: str | None, score: str | None) -> tuple[str, SentencePair, float | None]:
    """Return why a row is not a pair (empty if it is), the pair, and its score."""
    texts = [row.values.get(name) for name in (first, second) if name is not None]
    for name, text in zip((first, second), texts, strict=False):
        if not isinstance(text, str) or not text.strip():
            return f"{name} is empty or not a text", SentencePair("", None), None
    pair = SentencePair(texts[0], texts[1] if len(texts) > 1 else None)  # type: ignore[arg-type]
    if score is None:
        return "", pair, None
    rating = _number(row.values.get(score))
    return (f"{score} {shown_value(row.values.get(score))} is not a number" if rating is None else ""), pair, rating


def _number(value: Any) -> float | None:
    """Return a finite number; ``None`` for other values."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _alone(sentences: Sequence[tuple[str, int]], rejected: Sequence[Rejected], file: Path) -> ListDataset:
    if not sentences:
        raise DataError(f"{file} has no sentence; write one per line")
    return ListDataset(
        [SentencePair(text, None) for text, _ in sentences],
        names=[f"{file.name}:{number}" for _, number in sentences],
        files=[file],
        rejected=rejected,
        notes={SENTENCES: [text for text, _ in sentences]},
    )
