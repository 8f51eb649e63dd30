"""Notebooks: the code cells of an ``.ipynb`` file as one script; changes are written to the JSON in place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from transplant.edits import Edit, Finding, apply
from transplant.migrate import Options, migrate
from transplant.source import NotPythonError, check

_SPACE = re.compile(r"[ \t\r\n]*")
_PYTHON_MAGIC = re.compile(r"%%(time|timeit|capture|prun|debug)\b")
_MAGIC = re.compile(r"^([ \t]*(?:[\w.,* ]+=\s*)?)([%!?][^\n]*)", re.MULTILINE)
_ASKED = re.compile(r"^([ \t]*)([\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
_DEPTH = 64
_DECODER = json.JSONDecoder()
_LITERAL = re.compile(r"[^,\]}\s]+")


class NotNotebookError(ValueError):
    """A file is not a notebook of format 4; the message has the reason."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A string of the JSON: position and value."""

    start: int
    end: int
    value: str


@dataclass(slots=True)
class Cell:
    """A code cell: its number from 1, its strings, and its offset in the joined script."""

    number: int
    parts: list[_Text]
    listed: bool
    offset: int = 0

    @property
    def text(self) -> str:
        """The code of the cell."""
        return "".join(part.value for part in self.parts)


@dataclass(slots=True)
class Notebook:
    """Results for a notebook.

    Attributes:
        edits: of the JSON text. findings: with cell and line. problems: cells that are not Python: cell, message.
        changes: with cell and line. operators: dotted names called by the cells, with cell and line.
    """

    edits: list[Edit] = field(default_factory=list)
    findings: list[tuple[int, int, Finding]] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    changes: list[tuple[int, int, Edit]] = field(default_factory=list)
    operators: list[tuple[int, int, str]] = field(default_factory=list)


def migrate_notebook(text: str, options: Options) -> Notebook:
    """Return the changes of a notebook's text; everything except changed lines is preserved byte by byte.

    Raises:
        NotNotebookError: it is not a notebook.
    """
    found = Notebook()
    cells = []
    for cell in _cells(text):
        try:
            check(_masked(cell.text))
        except NotPythonError as error:
            found.problems.append((cell.number, str(error)))
        else:
            cells.append(cell)
    joined = ""
    for cell in cells:
        cell.offset = len(joined)
        joined += _masked(cell.text) + "\n"
    try:
        script = migrate(joined, options, run=True)
    except NotPythonError as error:  # such as await at the top level, valid in a cell only
        found.problems.append((0, str(error)))
        return found
    edits = _at_home(cells, script.edits)
    for cell in cells:
        inside = [
            Edit(edit.start - cell.offset, edit.end - cell.offset, edit.old, edit.new, edit.rule, edit.why)
            for edit in edits
            if _home(cells, edit.start) is cell
        ]
        found.edits += _written(text, cell, inside)
        found.changes += [(cell.number, cell.text[: edit.start].count("\n") + 1, edit) for edit in inside]
        for finding in script.findings:
            if _home(cells, finding.start) is cell:
                found.findings.append((cell.number, cell.text[: finding.start - cell.offset].count("\n") + 1, finding))
    return found


def _home(cells: list[Cell], offset: int) -> Cell:
    return [cell for cell in cells if cell.offset <= offset][-1]


def _masked(text: str) -> str:
    """Return a cell's text with magic lines replaced by no-op statements of the same length."""
    if text.startswith("%%") and not _PYTHON_MAGIC.match(text):
        return "".join("\n" if character == "\n" else "#" for character in text)
    head, end, rest = text.partition("\n") if text.startswith("%%") else ("", "", text)
    head = "#" * len(head)  # a comment: nothing may be inserted before it
    try:
        check(rest)
    except NotPythonError:
        rest = _MAGIC.sub(_idle, _ASKED.sub(_idle, rest))
    return head + end + rest


def _idle(match: re.Match[str]) -> str:
    return match[1] + "0" + "#" * (len(match[2]) - 1)


# ----------------------------------------------------------------------------------------------------------------- JSON


def _cells(text: str) -> Iterator[Cell]:
    """Yield the code cells of a notebook; raise NotNotebookError if it is not a notebook."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotNotebookError(f"is not JSON ({error}); it is copied unchanged") from error
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list):
        raise NotNotebookError("is not a notebook of format 4 (it has no cells); it is copied unchanged")
    language = found.get("metadata") or {}
    kernel = language.get("kernelspec", {}) if isinstance(language, dict) else {}
    if isinstance(kernel, dict) and "python" not in str(kernel.get("language", "python")).lower():
        raise NotNotebookError(f"is in {kernel.get('language')}, not in Python; it is copied unchanged")
    sources: dict[int, tuple[list[_Text], bool]] = {}
    _scan(text, _skip(text, 0), (), sources)
    for number, cell in enumerate(found["cells"]):
        if isinstance(cell, dict) and cell.get("cell_type") == "code" and number in sources:
            yield Cell(number + 1, *sources[number])


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _scan(text: str, at: int, path: tuple[Any, ...], sources: dict[int, tuple[list[_Text], bool]]) -> int:
    """Scan a valid JSON value; collect the strings of ``cells[N].source``; return its end."""
    if len(path) > _DEPTH:
        raise NotNotebookError("is nested too deeply; it is copied unchanged")
    if text[at] == "{":
        return _scan_many(text, at, path, sources, "}")
    if text[at] == "[":
        return _scan_many(text, at, path, sources, "]")
    if text[at] == '"':
        value, end = _DECODER.raw_decode(text, at)
        if len(path) in (3, 4) and path[0] == "cells" and path[2] == "source":
            parts, _ = sources.setdefault(path[1], ([], len(path) == 4))
            parts.append(_Text(at, end, value))
        return int(end)
    match = _LITERAL.match(text, at)
    return match.end() if match else at + 1


def _scan_many(
    text: str, at: int, path: tuple[Any, ...], sources: dict[int, tuple[list[_Text], bool]], close: str
) -> int:
    at, index = _skip(text, at + 1), 0
    while text[at] != close:
        key: Any = index
        if close == "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        at = _skip(text, _scan(text, at, (*path, key), sources))
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return at + 1


def _written(text: str, cell: Cell, edits: list[Edit]) -> list[Edit]:
    """Return the edits of the JSON for the edits of a cell: each changed string is replaced."""
    result, index, begin = [], 0, 0
    while index < len(cell.parts):
        first, end = index, begin + len(cell.parts[index].value)
        index += 1
        inside = _between(edits, begin, end, index == len(cell.parts))
        while inside and max(edit.end for edit in inside) > end and index < len(cell.parts):
            end += len(cell.parts[index].value)  # a change across lines
            index += 1
            inside = _between(edits, begin, end, index == len(cell.parts))
        if inside:
            moved = [Edit(one.start - begin, one.end - begin, one.old, one.new, one.rule, one.why) for one in inside]
            value = apply(cell.text[begin:end], moved)
            start, stop = cell.parts[first].start, cell.parts[index - 1].end
            rules = ", ".join(dict.fromkeys(edit.rule for edit in inside))
            why = "; ".join(dict.fromkeys(edit.why for edit in inside))
            result.append(Edit(start, stop, text[start:stop], _strings(text, cell, start, value), rules, why))
        begin = end
    return result


def _between(edits: list[Edit], begin: int, end: int, last: bool) -> list[Edit]:
    return [edit for edit in edits if begin <= edit.start < end or (last and edit.start == end)]


def _strings(text: str, cell: Cell, where: int, value: str) -> str:
    """Return a string as JSON; in a list one per line, with the white space between its other strings."""
    plain = "\\u" in text[where : cell.parts[-1].end]
    lines = re.findall(r"[^\n]*\n|[^\n]+", value) if cell.listed else [value]
    before = re.compile(r"[ \t\r\n]*\Z").search(text[max(0, where - 200) : where])
    gap = before[0] if before else "\n"
    return f",{gap}".join(json.dumps(line, ensure_ascii=plain) for line in lines or [""])


def _at_home(cells: list[Cell], edits: list[Edit]) -> list[Edit]:
    """Return edits; insertions after the last line of a cell are moved from the next cell to its end."""
    moved = []
    for edit in edits:
        follows = [cell for cell in cells if cell.offset + len(cell.text) + 1 == edit.start and not edit.old]
        ahead = [cell for cell in cells if cell.offset == edit.start]
        own = bool(ahead) and re.match(r"\s*(from|import)\s+torch", ahead[0].text) is not None
        if follows and not own and edit.new.endswith("\n"):
            home = follows[0]
            text = edit.new if home.text.endswith("\n") else "\n" + edit.new[:-1]
            at = home.offset + len(home.text)
            moved.append(Edit(at, at, "", text, edit.rule, edit.why))
        else:
            moved.append(edit)
    return sorted(moved)
