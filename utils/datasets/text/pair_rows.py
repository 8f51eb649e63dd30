"""Pairs of texts for existing scripts: rows of JSON lines or tables."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import not_a_file_reason, read_regular
from tecoinfer_modelzoo.text import one_line, shown_value
from tecoinfer_modelzoo.trees import below

Pair = tuple[str, str]

SENTENCES = (
    *(("sentence1", "sentence2"), ("sent1", "sent2"), ("text1", "text2"), ("text_a", "text_b")),
    *(("sentence_a", "sentence_b"), ("question1", "question2"), ("premise", "hypothesis"), ("query", "passage")),
    *(("query", "document"), ("query", "text"), ("question", "answer"), ("anchor", "positive")),
)
"""Column names of a pair."""

CODE = (
    *(("func_documentation_string", "func_code_string"), ("docstring", "code")),
    *(("func_documentation_string", "whole_func_string"), ("query", "code"), ("doc", "code")),
    *SENTENCES,
)
"""Column names of a text and code; the first are those of CodeSearchNet, on the hub and as published."""

PARQUET = b"PAR1"

MOST_UNPACKED = 1 << 30
"""Maximum bytes of an unpacked file."""


class Row(NamedTuple):
    """A value and its position, ``file:line``."""

    where: str
    value: Any


class Skipped:
    """Counter of skipped entries, for one warning; ``what`` names them with a verb, such as ``rows are``."""

    def __init__(self, source: object, what: str) -> None:
        self.source, self.what, self.count, self.first = source, what, 0, ""

    def add(self, where: str, why: str) -> None:
        """Count an entry that cannot be used."""
        self.count += 1
        self.first = self.first or f"{where}: {why}"

    def warn(self) -> None:
        """Warn if anything was skipped."""
        if self.count:
            lost = f"{self.count} {self.what} skipped, the first: {self.first}"
            warnings.warn(f"{self.source}: {lost}", UserWarning, stacklevel=4)


def read_pairs(rows: Iterable[Row], names: Sequence[tuple[str, str]], source: object) -> list[Pair]:
    """Return the pairs of rows; invalid rows are skipped with a warning.

    A row is an object with two columns of one of ``names``, with texts or equally long lists of texts; or a list of two
    texts. The first accepted pair of columns that the first object has is used for all. Raises DataError if no row can
    be used, or the columns have other names.
    """
    skipped, found, columns = Skipped(source, "rows are"), list[Pair](), None
    for where, value in rows:
        if isinstance(value, dict):
            columns = columns or _columns(value, names, where)
            first, second = (value.get(name) for name in columns)
        elif isinstance(value, (list, tuple)) and len(value) == 2:
            first, second = value
        else:
            skipped.add(where, "it must be an object or a list of two texts")
            continue
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            both = enumerate(zip(first, second, strict=True), 1)
            several = [(f"{where}, pair {place}", pair) for place, pair in both]
        else:
            several = [(where, (first, second))]
        for place, pair in several:
            why = wrong_text(pair)
            if why:
                skipped.add(place, why)
            else:
                found.append(pair)
    if not found:
        raise DataError(f"{source}: no pair of texts can be used ({skipped.first or 'it is empty'}); correct the file")
    skipped.warn()
    return found


def wrong_text(texts: Iterable[Any]) -> str:
    """Return why texts are invalid, ``""`` if they are valid."""
    for text in texts:
        if not isinstance(text, str):
            return f"{shown_value(text)} is not a text"
        if not text.strip():
            return "a text is empty"
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            return "a text has half of a surrogate pair"
    return ""


def _columns(value: dict[str, Any], names: Sequence[tuple[str, str]], where: str) -> tuple[str, str]:
    found = next((pair for pair in names if all(name in value for name in pair)), None)
    if found is None:
        listed = ", ".join(map(shown_value, list(value)[:12])) or "none"
        known = "; ".join(" and ".join(pair) for pair in names[:4])
        raise DataError(f"{where}: unknown columns {listed}; rename two of them, for example to {known}")
    return found


def read_rows(path: Path, kind: str = "json") -> Iterator[Row]:
    """Yield the rows of a file, also gzipped. Raises DataError if it cannot be read, has another format, or is empty.

    ``kind`` is ``json``: an object or list per line, or one JSON list of them; ``csv``, ``tsv``: a table with column
    names; ``text``: a pair per line, separated by a tab.
    """
    if not path.is_file():
        raise DataError(f"data path {path} {not_a_file_reason(path)}; pass a file of pairs")
    try:
        content = read_regular(path)
        if path.suffix == ".gz":
            content = _unpacked(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}); get the file again") from error
    yield from rows_of(content, path, kind)


def _unpacked(content: bytes) -> bytes:
    return _bounded(gzip.open(io.BytesIO(content)))


def _bounded(stream: IO[bytes] | gzip.GzipFile) -> bytes:
    """Return the rest of a decompressing stream; OSError if it is too long, as a few KB may become any size."""
    with stream:
        content = stream.read(MOST_UNPACKED + 1)
    if len(content) > MOST_UNPACKED:
        raise OSError(f"it unpacks to more than {MOST_UNPACKED} bytes")
    return content


def rows_of(content: bytes, source: object, kind: str) -> Iterator[Row]:
    """Yield the rows of a file's content (:func:`read_rows`)."""
    if content[:4] == PARQUET:
        raise DataError(
            f"{source}: Parquet is not supported; convert it to JSON lines: "
            "pandas.read_parquet(FILE).to_json(FILE + '.jsonl', orient='records', lines=True, force_ascii=False)"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    readers = {"json": _json, "jsonl": _json, "csv": _table, "tsv": _table, "txt": _tabbed, "text": _tabbed}
    if kind not in readers:
        raise DataError(f"{source}: unknown file type {kind!r}; use one of {', '.join(readers)}")
    yield from readers[kind](text, source)


def _json(text: str, source: object) -> Iterator[Row]:
    if text.lstrip().startswith("["):
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            whole = None  # one list per line
        if isinstance(whole, list) and not (len(whole) == 2 and all(isinstance(one, str) for one in whole)):
            yield from (Row(f"{source}: entry {place + 1}", value) for place, value in enumerate(whole))
            return
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    for number, line in lines:
        try:
            yield Row(f"{source}:{number}", json.loads(line))
        except (ValueError, RecursionError):
            yield Row(f"{source}:{number}", None)


def _table(text: str, source: object) -> Iterator[Row]:
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in head else ",")
    try:
        for row in reader:
            yield Row(f"{source}:{reader.line_num}", row)
    except csv.Error as error:
        raise DataError(f"{source}:{reader.line_num}: not a table ({error}); write fields in double quotes") from error


def _tabbed(text: str, source: object) -> Iterator[Row]:
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if line.strip():
            yield Row(f"{source}:{number}", line.split("\t"))


def literal(line: str) -> Any:
    """Return the list in a line of JSON or Python; ``None`` for other lines."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(line)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return None


def split_of(folder: Path) -> Iterator[Row]:
    """Yield the rows of the test split in Python, in a folder of JSON lines with CodeSearchNet's layout.

    The files are in the folder, or in archives there (``data/python.zip``). If some names contain ``test``, the other
    files are skipped, and the same for ``python``. Raises DataError if the folder has no file of JSON lines.
    """
    files = sorted(file for file in below(folder) if file.is_file())
    lines: dict[str, Path | tuple[Path, str]] = {
        str(file.relative_to(folder)): file for file in files if _is_lines(file.name)
    }
    for archive in () if lines else [file for file in files if file.suffix == ".zip"]:
        try:
            with zipfile.ZipFile(archive) as opened:
                lines |= {f"{archive.stem}/{name}": (archive, name) for name in opened.namelist() if _is_lines(name)}
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{archive} cannot be read ({one_line(error)}); get the file again") from error
    chosen = list(lines)
    for word in ("test", "python"):
        chosen = [name for name in chosen if word in name.lower()] or chosen
    if not chosen:
        parquet = next((file for file in files if file.suffix == ".parquet"), None)
        if parquet is not None:
            yield from rows_of(PARQUET, parquet, "json")
        raise DataError(f"{folder} has no .jsonl or .jsonl.gz file, nor an archive of them; pass such a file")
    for name in chosen:
        place = lines[name]
        if isinstance(place, Path):
            yield from read_rows(place)
        else:
            yield from _packed(*place)


def _is_lines(name: str) -> bool:
    return name.endswith((".jsonl", ".jsonl.gz"))


def _packed(archive: Path, name: str) -> Iterator[Row]:
    try:
        with zipfile.ZipFile(archive) as opened:
            content = _bounded(opened.open(name))
        if name.endswith(".gz"):
            content = _unpacked(content)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise DataError(f"{archive}: {name} cannot be read ({one_line(error)}); get the file again") from error
    yield from rows_of(content, f"{archive}/{name}", "json")
