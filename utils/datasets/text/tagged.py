"""Sentences of words with a tag each: CoNLL files, JSON lines, and plain text without tags.

- CoNLL-2003 and alike: a word per line, columns separated by spaces or tabs, an empty line after each sentence; a line
  ``-DOCSTART-`` begins a document. The first column has the word and the last one the tag; others are not read.
- JSON lines: ``{"tokens": [...], "tags": [...]}``, or ``{"text": "...", "entities": [[begin, end, "PER"], ...]}``.
- ``.txt``: a sentence per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.text.tables import ENCODING, NOT_TEXT, Row, is_text, read_lines, read_table, rejected_line

DOCUMENT = "-DOCSTART-"
"""First word of a line that begins a document."""

TAGS = "tags"
"""Key of the notes: all different tags of a data set, sorted; numbers are left out."""

TAG_SEQUENCES = "tag_sequences"
"""Key of the notes: the different sequences of tags, by which their scheme is recognised."""

_WORDS, _TAGS, _SPANS = ("tokens", "words"), ("tags", "ner_tags", "labels"), ("entities", "label", "labels", "spans")
_TABLES, _COLUMNS = (".jsonl", ".json"), (".conll", ".bio", ".iob", ".iob2", ".tsv", ".txt", "")
_WORD = re.compile("[\u3400-\u9fff\uf900-\ufaff]|[^\\W_\u3400-\u9fff\uf900-\ufaff]+|[^\\w\\s]|_")
"""A Chinese character, a run of other letters and digits, or a punctuation mark."""


class Sentence(NamedTuple):
    """A sentence: its text, its words, and the first character of each in the text."""

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]


def sentence_of(words: Sequence[str]) -> Sentence:
    """Return words as a sentence, with single spaces between them."""
    starts, place = [], 0
    for word in words:
        starts.append(place)
        place += len(word) + 1
    return Sentence(" ".join(words), tuple(words), tuple(starts))


def split_text(text: str) -> Sentence:
    """Return a text as a sentence of words, punctuation marks and single Chinese characters."""
    found = list(_WORD.finditer(text))
    return Sentence(text, tuple(one[0] for one in found), tuple(one.start() for one in found))


class _Found(NamedTuple):
    sentence: Sentence
    tags: tuple[Any, ...] | None
    name: str
    unit: str | None


def load_tagged(path: Path, *, tags: bool = True, column: int = -1, encoding: str = ENCODING) -> ListDataset:
    """Return the sentences of a file, or of all files of a folder, in the layouts of this module.

    Targets are tuples of tags, ``None`` for a file of plain text, or without ``tags``. Sentences of a document are one
    unit. An invalid sentence (words without a tag, a tag without a word, invalid bytes) is in ``rejected``.

    Args:
        path: the file or folder. tags: whether they are read.
        column: of the tags in a CoNLL file, from 1, or counted from the last one, -1. encoding: of the files.

    Raises:
        DataError: The path has no usable sentence.
    """
    check_exists(path)
    files = [path]
    if path.is_dir():
        files = [one for one in sorted(path.iterdir()) if one.is_file() and not one.name.startswith(".")]
    found, rejected = list[_Found](), list[Rejected]()
    for file in files:
        if file.suffix.lower() not in (*_TABLES, *_COLUMNS):
            rejected.append(Rejected(file, f"not a file of tagged words; use {' '.join((*_TABLES, *_COLUMNS[:-1]))}"))
            continue
        reader = _of_json(file, encoding) if file.suffix.lower() in _TABLES else _of_columns(file, column, encoding)
        for one in reader:
            (rejected if isinstance(one, Rejected) else found).append(one)  # type: ignore[arg-type]
    if not found:
        why = f" ({rejected[0].path}: {rejected[0].reason})" if rejected else ""
        raise DataError(f"{path} has no sentence that can be used{why}; see docs/reference/nlp.md for the formats")
    if len({one.tags is None for one in found}) == 2:
        rejected += [
            Rejected(Path(one.name), "no tags, but other sentences have some") for one in found if not one.tags
        ]
        found = [one for one in found if one.tags is not None]
    targets = [one.tags for one in found] if tags and found[0].tags is not None else None
    known = sorted({tag for one in targets or () for tag in one or () if isinstance(tag, str)})
    kinds = sorted({tuple(map(str, one or ())) for one in targets or ()})
    return ListDataset(
        [one.sentence for one in found],
        targets,
        names=[one.name for one in found],
        units=[one.unit or one.name for one in found] if any(one.unit for one in found) else None,
        files=files,
        rejected=rejected,
        notes={TAGS: known, TAG_SEQUENCES: kinds},
    )


def _of_columns(file: Path, column: int, encoding: str) -> Iterator[_Found | Rejected]:
    """Yield the sentences of a CoNLL file, or of a ``.txt`` whose lines are sentences."""
    lines = [(number, line.strip("\r\n ")) for number, line in read_lines(file, encoding)]
    if file.suffix.lower() == ".txt" and not _has_columns(lines):
        yield from _plain(file, lines, encoding)
        return
    document, rows, first = 0, list[list[str]](), 1
    for number, line in [*lines, (len(lines) + 1, "")]:
        fields = line.split("\t") if "\t" in line else line.split()
        if fields and fields[0] == DOCUMENT:
            document += 1
        elif line and not line.startswith("# "):
            first = first if rows else number
            rows.append(fields)
            continue
        if rows and (not line or fields[0] == DOCUMENT):
            yield _checked(file, rows, column, first, document, encoding)
            rows = []


def _has_columns(lines: Sequence[tuple[int, str]]) -> bool:
    """Return whether all lines have the same number of columns, at least two, and sentences end with empty lines."""
    counts = {len(line.split()) for _, line in lines if line and not line.startswith(DOCUMENT)}
    texts = [line for _, line in lines if line]
    empty = any(not line for _, line in lines[: max(0, len(lines) - 2)])
    return len(counts) == 1 and min(counts) > 1 and len(texts) > 1 and (empty or counts == {2})


def _plain(file: Path, lines: Sequence[tuple[int, str]], encoding: str) -> Iterator[_Found | Rejected]:
    for number, line in lines:
        if not is_text(line):
            yield rejected_line(file, number, NOT_TEXT.format(encoding.upper()))
        elif line:
            sentence = split_text(line)
            yield _Found(sentence, None, f"{file.name}:{number}", None)


def _checked(
    file: Path, rows: Sequence[Sequence[str]], column: int, first: int, document: int, encoding: str
) -> _Found | Rejected:
    least = max(2, abs(column))
    short = next((place for place, fields in enumerate(rows) if len(fields) < least), None)
    if short is not None:
        why = f"{len(rows[short])} column{'s' * (len(rows[short]) != 1)}, expected a word and a tag"
        return rejected_line(file, first + short, f"{why}: the sentence is left out; correct the line")
    if not all(is_text(field) for fields in rows for field in fields):
        return rejected_line(file, first, NOT_TEXT.format(encoding.upper()))
    tags = tuple(fields[column if column < 0 else column - 1] for fields in rows)
    unit = f"{file.name}:document {document}" if document else None
    return _Found(sentence_of([fields[0] for fields in rows]), tags, f"{file.name}:{first}", unit)


def _of_json(file: Path, encoding: str) -> Iterator[_Found | Rejected]:
    table = read_table(file, encoding=encoding)
    yield from table.rejected
    words, tags = table.column(None, _WORDS, ""), table.column(None, _TAGS, "")
    text, spans = table.column(None, ("text",), ""), table.column(None, _SPANS, "")
    if words is None and text is None:
        raise DataError(f"{file}: the keys are {table.listed()}; expected tokens and tags, or text and entities")
    for row in table.rows:
        try:
            sentence, own = _tokens(row, words, tags) if words is not None else _spans(row, str(text), spans)
        except ValueError as error:
            yield table.reject(row, str(error))
            continue
        unit = row.values.get("document")
        yield _Found(sentence, own, f"{file.name}:{row.number}", None if unit is None else str(unit))


def _tokens(row: Row, words: str, tags: str | None) -> tuple[Sentence, tuple[Any, ...] | None]:
    found, own = row.values.get(words), row.values.get(tags) if tags is not None else None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one.strip() for one in found):
        raise ValueError(f"its {words!r} is {shown_value(found)}; write a list of words")
    if own is None:
        return sentence_of(found), None
    valid = isinstance(own, list) and all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in own)
    if not valid or len(own) != len(found):
        many = f"{len(own)} tags for {len(found)} words" if isinstance(own, list) else shown_value(own)
        raise ValueError(f"its {tags!r}: {many}; write one tag per word, as text or as class number")
    return sentence_of(found), tuple(own)


def _spans(row: Row, text: str, spans: str | None) -> tuple[Sentence, tuple[Any, ...] | None]:
    whole, own = row.values.get(text), row.values.get(spans) if spans is not None else None
    if not isinstance(whole, str) or not whole.strip():
        raise ValueError(f"its {text!r} is {shown_value(whole)}; write a text")
    sentence = split_text(whole)
    if own is None:
        return sentence, None
    if not isinstance(own, list):
        raise ValueError(f"its {spans!r} is {shown_value(own)}; write a list of [begin, end, type]")
    tags = ["O"] * len(sentence.words)
    for span in own:
        begin, end, kind = _span(span, len(whole))
        inside = [
            place
            for place, (start, word) in enumerate(zip(sentence.starts, sentence.words, strict=True))
            if start < end and start + len(word) > begin
        ]
        exact = inside and sentence.starts[inside[0]] == begin
        if not exact or sentence.starts[inside[-1]] + len(sentence.words[inside[-1]]) != end:
            raise ValueError(f"entity {shown_value(whole[begin:end])} does not begin and end with words; correct it")
        if any(tags[place] != "O" for place in inside):
            raise ValueError(f"entity {shown_value(whole[begin:end])} overlaps another one; keep one of them")
        for place in inside:
            tags[place] = f"{'B' if place == inside[0] else 'I'}-{kind}"
    return sentence, tuple(tags)


def _span(span: Any, length: int) -> tuple[int, int, str]:
    """Return begin, end and type of an entity: a list, or an object with ``start``, ``end`` and ``label``."""
    if isinstance(span, dict):
        span = [span.get("start"), span.get("end"), span.get("label")]
    if not isinstance(span, list) or len(span) != 3 or not isinstance(span[2], str) or not span[2]:
        raise ValueError(f"entity {shown_value(span)} is not [begin, end, type]; correct it")
    begin, end, kind = span
    if type(begin) is not int or type(end) is not int or not 0 <= begin < end <= length:
        raise ValueError(f"entity {shown_value(span)} is not within the text's {length} characters; correct it")
    return begin, end, kind
