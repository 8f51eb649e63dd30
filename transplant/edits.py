"""Changes of a file: replaced spans of its text, and findings for manual work."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

TODO, KEPT = "to do", "kept"
"""Requires manual work; remains unchanged, which is correct."""

_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replaced span of a text.

    Attributes:
        start, end: in characters of the text, from 0. old, new: the span before and after; an insertion has no ``old``.
        rule: name of the rule. why: short explanation.
    """

    start: int
    end: int
    old: str
    new: str
    rule: str
    why: str


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place that was not changed.

    Attributes:
        start, end: in characters of the text. kind: :data:`TODO` or :data:`KEPT`.
        what: text of the file. reason: why it was not changed. fix: what to do, or "".
    """

    start: int
    end: int
    kind: str
    what: str
    reason: str
    fix: str = ""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits applied.

    Raises:
        ValueError: two edits overlap, or the text differs from the one they were made for.
    """
    pieces, last = [], 0
    for edit in sorted(edits):
        if edit.start < last or text[edit.start : edit.end] != edit.old:
            raise ValueError(f"the change of {edit.old!r} at character {edit.start} does not match the text")
        pieces += [text[last : edit.start], edit.new]
        last = edit.end
    return "".join([*pieces, text[last:]])


class Lines:
    """Line starts of a text, as counted by Python."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """Return the character offset of a line, from 1, and a column, from 0."""
        return self.starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and the column, both from 1, of a character offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


def line_end(text: str, offset: int) -> str:
    """Return the line ending at a character; without one, that of the text's first line."""
    match = _LINE_END.search(text, offset) or _LINE_END.search(text)
    return match[0] if match else "\n"
