"""What is done to a file: spans of its text that are replaced, and places that a person is told of."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

TODO, KEPT = "to do", "kept"
"""A person must look at it; it stays as it is, and that is right."""

_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A span of a text and what takes its place.

    Attributes:
        start, end: in characters of the text, from 0. old, new: the span before and after; an insertion has no ``old``.
        rule: the name of the rule. why: what it means, in a few words.
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
        what: the words of the file. reason: why it was not changed. fix: what to do, empty where nothing is.
    """

    start: int
    end: int
    kind: str
    what: str
    reason: str
    fix: str = ""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with its edits made.

    Raises:
        ValueError: two of them overlap, or the text is another than the one they were found in.
    """
    pieces, last = [], 0
    for edit in sorted(edits):
        if edit.start < last or text[edit.start : edit.end] != edit.old:
            raise ValueError(f"the change of {edit.old!r} at character {edit.start} does not fit the text")
        pieces += [text[last : edit.start], edit.new]
        last = edit.end
    return "".join([*pieces, text[last:]])


class Lines:
    """Where the lines of a text begin, as Python counts them."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """Return the character of a line, from 1, and a column, from 0."""
        return self.starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line, from 1, and the column, from 1, of a character."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


def line_end(text: str, offset: int) -> str:
    """Return how the line of a character ends; where it does not, how the text's first line does."""
    match = _LINE_END.search(text, offset) or _LINE_END.search(text)
    return match[0] if match else "\n"
