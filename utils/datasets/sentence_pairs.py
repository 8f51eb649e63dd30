"""Pairs of sentences with how alike people find them: named columns, STS-B's two layouts, SICK; or sentences alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.text_rows import Row, Rows, content_of, json_lines, lines_of, named_rows, place, tab_separated

FIRST = ("sentence1", "sentence_a", "text1", "text_a", "first", "query", "sentence", "text")
SECOND = ("sentence2", "sentence_b", "text2", "text_b", "second", "passage")
SCORE = ("score", "similarity", "relatedness_score", "gold", "rating", "label")
"""Names of columns that are known, capitals or not; a file's own are named by ``--columns``."""

STS_COLUMNS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")
"""Columns of STS benchmark's own files (``sts-dev.csv``), which are tab-separated and have no names in them."""

SENTENCES = "sentences"
"""Note of a data set whose samples are sentences alone: all of them, among which the nearest is looked for."""


class SentencePair(NamedTuple):
    """Two sentences to compare; ``second`` is ``None`` where the nearest of all others is looked for."""

    first: str
    second: str | None


def load_sentences(path: Path, columns: Sequence[str] = ()) -> ListDataset:
    """Load pairs of sentences, with a score each where all rows have one; or sentences alone.

    - ``.tsv``, ``.csv``, ``.jsonl`` with named columns: GLUE's STS-B (``sentence1``, ``sentence2``, ``score``) and
      SICK's (``sentence_A``, ``sentence_B``, ``relatedness_score``; ``.txt``) are known, as are other usual names.
    - STS benchmark's own files, ``sts-dev.csv``: tabs, no names.
    - one column of text, or ``.txt`` with a sentence per line: sentences alone.
    - a folder: the first of ``sts-dev.csv``, ``dev.tsv``, ``SICK.txt`` and other tables that is there.

    A row without text or with a score that is no number is in ``rejected``. Names are ``file:line``.

    Args:
        path: a file or a folder. columns: names of the columns of the first text, the second and the score; the last
            ones may be left out.

    Raises:
        DataError: nothing usable is there; the text names file and fix.
    """
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    file = _table_in(path) if path.is_dir() else path
    if file.suffix.lower() == ".txt" and not columns and not _has_names(file):
        return _alone([(line.strip(), number) for number, line in lines_of(file)], file, [])
    found = _read(file)
    first, second, score = _chosen(found, columns, file)
    rejected, pairs = list(found.rejected), list[tuple[SentencePair, float | None, int]]()
    for row in found.rows:
        reason, pair, rating = _pair(row, first, second, score)
        if reason:
            rejected.append(Rejected(place(file, row.number), reason))
        else:
            pairs.append((pair, rating, row.number))
    if not pairs:
        why = f"; line {rejected[0].path.name.rpartition(':')[2]}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file} holds no sentence that can be used{why}; correct it")
    if second is None:
        return _alone([(pair.first, number) for pair, _, number in pairs], file, rejected)
    ratings = None if score is None else [rating for _, rating, _ in pairs]
    names = [f"{file.name}:{number}" for _, _, number in pairs]
    return ListDataset([pair for pair, _, _ in pairs], ratings, names=names, files=[file], rejected=rejected)


def pairs_of(texts: Sequence[str]) -> ListDataset:
    """Return texts that were typed in: two are a pair, more are sentences alone.

    Raises:
        ConfigError: there are not two.
    """
    if len(texts) < 2:
        raise ConfigError("one sentence is like nothing; give two, or a file of sentences")
    if len(texts) == 2:
        return ListDataset([SentencePair(*texts)], names=["text"])
    sentences = [SentencePair(text, None) for text in texts]
    return ListDataset(sentences, names=[f"text {i + 1}" for i in range(len(texts))], notes={SENTENCES: list(texts)})


def _table_in(folder: Path) -> Path:
    known = ("sts-test.csv", "sts-dev.csv", "dev.tsv", "SICK.txt", "SICK_test_annotated.txt")
    files = [folder / name for name in known if (folder / name).is_file()]
    files += sorted(one for one in folder.iterdir() if one.suffix.lower() in (".tsv", ".csv", ".jsonl", ".txt"))
    if not files:
        raise DataError(f"data folder {folder} holds no .tsv, .csv, .jsonl or .txt file; give a file of pairs")
    return files[0]


def _has_names(file: Path) -> bool:
    """Say whether the first line of a ``.txt`` has names of columns, as SICK's has."""
    first = next((line for _, line in lines_of(file)), "")
    return bool({name.strip().lower() for name in first.split("\t")} & set(SECOND))


def _read(file: Path) -> Rows:
    """Read a table; STS benchmark's own files are known by their fields."""
    if file.suffix.lower() in (".csv", ".tsv"):
        start = content_of(file).lstrip("\n").split("\n", 1)[0].split("\t")
        if len(start) >= len(STS_COLUMNS) and _number(start[STS_COLUMNS.index("score")]) is not None:
            return tab_separated(file, STS_COLUMNS, more=True)
        if file.suffix.lower() == ".csv" and len(start) > 1 and "," not in start[0]:
            return tab_separated(file)
    return json_lines(file) if file.suffix.lower() == ".json" else named_rows(file)


def _chosen(found: Rows, columns: Sequence[str], file: Path) -> tuple[str, str | None, str | None]:
    """Return the names of the columns with the first text, the second and the score."""
    listed = ", ".join(map(repr, found.columns))
    for name in columns:
        if name not in found.columns:
            raise DataError(f"{file}: there is no column {name!r}; its columns are {listed}; correct --columns")
    if columns:
        rest = [*columns, None, None]
        return columns[0], rest[1], rest[2]
    first, second, score = (_known(names, found.columns) for names in (FIRST, SECOND, SCORE))
    if first is None:
        raise DataError(
            f"{file}: its columns are {listed}, and none is known as a text; name them: --columns TEXT1 TEXT2 SCORE"
        )
    return first, second, score if second is not None else None


def _known(names: Sequence[str], columns: Sequence[str]) -> str | None:
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def _pair(row: Row, first: str, second: str | None, score: str | None) -> tuple[str, SentencePair, float | None]:
    """Return why a row is no pair (empty: it is one), the pair, and its score."""
    texts = [row.values.get(name) for name in (first, second) if name is not None]
    for name, text in zip((first, second), texts, strict=False):
        if not isinstance(text, str) or not text.strip():
            return f"{name} is empty or no text", SentencePair("", None), None
    pair = SentencePair(texts[0], texts[1] if len(texts) > 1 else None)  # type: ignore[arg-type]
    if score is None:
        return "", pair, None
    rating = _number(row.values.get(score))
    return (f"{score} {row.values.get(score)!r} is no number" if rating is None else ""), pair, rating


def _number(value: Any) -> float | None:
    """Return a finite number; ``None`` of what is none."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _alone(sentences: Sequence[tuple[str, int]], file: Path, rejected: Sequence[Rejected]) -> ListDataset:
    if not sentences:
        raise DataError(f"{file} holds no sentence; write one per line")
    return ListDataset(
        [SentencePair(text, None) for text, _ in sentences],
        names=[f"{file.name}:{number}" for _, number in sentences],
        files=[file],
        rejected=rejected,
        notes={SENTENCES: [text for text, _ in sentences]},
    )
