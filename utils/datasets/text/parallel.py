"""Parallel texts for translation: two files line by line, tables, JSON lines; source alone for answers only.

A target is a tuple of reference translations, one or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

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

SOURCES = ("source", "src", "text", "sentence", "input", "en", "english")
TARGETS = ("references", "target", "reference", "ref", "tgt", "translation", "output")
"""Usual names of columns."""

NAMES = ("src", "ref")
"""Names of two parallel files: ``--data_path src=A ref=B``; further references are ``ref2``, ``ref3``, ..."""


_Row: TypeAlias = "tuple[str, tuple[str, ...], str]"
"""A source, its references, and the name of its line."""


def load_pairs(
    paths: Mapping[str, Path],
    *,
    source: str | None = None,
    target: str | None = None,
    references: bool = True,
    encoding: str = ENCODING,
) -> ListDataset:
    """Return sources, with reference translations if known.

    Args:
        paths: ``src`` and ``ref`` (``ref2``, ...): text files with a sentence per line, the same number each; or
            ``data``: ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` with a column of sources and one of targets (a text, or
            in JSON a list of texts; or ``{"translation": {"en": ..., "fr": ...}}``), or ``.txt`` with sources only.
        source, target: columns, or languages within ``translation``; ``None``: by their usual names.
        references: whether targets are needed; a row without one is then rejected. encoding: of the files.

    Raises:
        DataError: A file is missing, two files have different numbers of lines, or no row can be used.
    """
    check_exists(*paths.values())
    found, rejected = _of_files(paths, encoding) if "src" in paths else _of_file(paths, source, target, encoding)
    if references and any(right for _, right, _ in found):
        rejected += [
            Rejected(Path(name), "no translation, but other rows have one") for _, right, name in found if not right
        ]
        found = [one for one in found if one[1]]
    if not found:
        why = f" ({rejected[0].path}: {rejected[0].reason})" if rejected else ""
        files = ", ".join(map(str, paths.values()))
        raise DataError(f"{files}: no text that can be used{why}; see docs/reference/nlp.md")
    known = references and bool(found[0][1])
    return ListDataset(
        [text for text, _, _ in found],
        [right for _, right, _ in found] if known else None,
        names=[name for _, _, name in found],
        files=list(paths.values()),
        rejected=rejected,
    )


def _of_files(paths: Mapping[str, Path], encoding: str) -> tuple[list[_Row], list[Rejected]]:
    """Return the rows of parallel files."""
    columns = {name: list(read_lines(path, encoding)) for name, path in paths.items()}
    for name, lines in columns.items():
        if lines and not lines[-1][1]:
            lines.pop()  # after the last line feed
        if len(lines) != len(columns["src"]):
            raise DataError(
                f"{paths[name]} has {len(lines)} lines and {paths['src']} has {len(columns['src'])}; parallel files "
                "have a translation per line, in the same order"
            )
    found, rejected = list[_Row](), list[Rejected]()
    for place, (number, text) in enumerate(columns["src"]):
        others = {name: lines[place][1] for name, lines in columns.items() if name != "src"}
        bad = next((name for name, own in {"src": text, **others}.items() if not is_text(own)), None)
        if bad is not None:
            rejected.append(rejected_line(paths[bad], number, NOT_TEXT.format(encoding.upper())))
        elif not text.strip() or not all(own.strip() for own in others.values()):
            if text.strip() or any(own.strip() for own in others.values()):
                rejected.append(rejected_line(paths["src"], number, "it or its translation is empty; write both"))
        else:
            found.append((text.strip(), tuple(own.strip() for own in others.values()), f"{paths['src'].name}:{number}"))
    return found, rejected


def _of_file(
    paths: Mapping[str, Path], source: str | None, target: str | None, encoding: str
) -> tuple[list[_Row], list[Rejected]]:
    if set(paths) != {"data"}:
        raise DataError(
            f"--data_path has {', '.join(paths)}; give one file, or two as src=FILE ref=FILE, by these names"
        )
    file = paths["data"]
    if file.suffix.lower() == ".txt":
        rows = [(number, line.strip()) for number, line in read_lines(file, encoding) if line.strip()]
        bad = [
            rejected_line(file, number, NOT_TEXT.format(encoding.upper())) for number, text in rows if not is_text(text)
        ]
        return [(text, (), f"{file.name}:{number}") for number, text in rows if is_text(text)], bad
    if file.suffix.lower() not in ENDINGS:
        raise DataError(f"{file} is not a file of texts; pass one ending in .txt {' '.join(ENDINGS)}, or src=A ref=B")
    table = read_table(file, encoding=encoding)
    found, rejected = list[_Row](), list(table.rejected)
    if not table.rows:
        return found, rejected
    nested = "translation" in table.columns and isinstance(table.rows[0].values.get("translation"), dict)
    own, other = _languages(table, source, target) if nested else _columns(table, source, target)
    for row in table.rows:
        values = row.values.get("translation") if nested else row.values
        try:
            if not isinstance(values, Mapping):
                raise ValueError(f"its 'translation' is {shown_value(values)}; write an object of texts by language")
            text, right = _text(values, own), () if other is None else _references(values, other)
        except ValueError as error:
            rejected.append(table.reject(row, str(error)))
            continue
        found.append((text, right, f"{file.name}:{row.number}"))
    return found, rejected


def _columns(table: Table, source: str | None, target: str | None) -> tuple[str, str | None]:
    own = table.column(source, SOURCES, "--source_column")
    if own is None:
        raise DataError(
            f"{table.file}: the columns are {table.listed()}, and none has a usual name; set the column of sources "
            "with --source_column NAME, and that of translations with --target_column NAME"
        )
    return own, table.column(target, TARGETS, "--target_column")


def _languages(table: Table, source: str | None, target: str | None) -> tuple[str, str]:
    known = list(dict.fromkeys(key for row in table.rows for key in _keys(row)))
    if source is None and target is None and len(known) == 2:
        return known[0], known[1]
    missing = next((one for one in (source, target) if one not in known), None)
    if source is None or target is None or missing is not None:
        raise DataError(
            f"{table.file}: 'translation' has the languages {', '.join(known)}; set two of them with --source_column "
            "and --target_column"
        )
    return source, target


def _keys(row: Row) -> Sequence[str]:
    value = row.values.get("translation")
    return list(map(str, value)) if isinstance(value, Mapping) else []


def _text(values: Mapping[str, Any], column: str) -> str:
    value = values.get(column)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"its {column!r} is {shown_value(value)}; write a text")
    return value.strip()


def _references(values: Mapping[str, Any], column: str) -> tuple[str, ...]:
    value = values.get(column)
    if value is None or value == "":
        return ()
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(one, str) and one.strip() for one in listed):
        raise ValueError(f"its {column!r} is {shown_value(value)}; write a translation, or a list of them")
    return tuple(one.strip() for one in listed)
