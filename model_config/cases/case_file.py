"""YAML with line numbers: what a ``model.yaml`` says, entry by entry, so that a bad one spoils no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine import one_line

if TYPE_CHECKING:
    import yaml

_ENTRY = re.compile(r"^-(?=\s|$)", re.MULTILINE)
"""Start of an entry of the list a file holds."""

_NAME = re.compile(r"""case_name:[ ]*["']?([\w.+-]+)""")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that cannot be used: its line (from 1; 0: the whole file), key (or nothing), reason and remedy."""

    line: int
    key: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list.

    Attributes:
        line: where it starts.
        data: what it says, in plain types; ``None`` where ``troubles`` say that it cannot be read.
        name: its ``case_name``, guessed from the text where it cannot be read; empty where there is none.
        troubles: keys given twice, and what is not YAML.
        node: its place in the parsed file, for :meth:`line_of`.
    """

    line: int
    data: Any = None
    name: str = ""
    troubles: tuple[Trouble, ...] = ()
    node: yaml.Node | None = field(default=None, repr=False)

    def line_of(self, key: str) -> int:
        """Return the line of a key such as ``run_export.params``, or of the nearest thing around it that is there."""
        node, line = self.node, self.line
        for part in key.split("."):
            found = next((pair for pair in _pairs(node) if str(pair[0].value) == part), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        return line


def read_entries(text: str) -> tuple[list[Entry], list[Trouble]]:
    """Return the entries of a file and what is wrong with the file as a whole.

    Where the text is not YAML, each piece that starts with ``- `` is read by itself: the others are still usable.
    """
    entries, trouble = _read(text)
    starts = [match.start() for match in _ENTRY.finditer(text)]
    if trouble is None or not starts:
        return entries, [trouble] if trouble else []
    entries = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        found, trouble = _read_piece(text[start:end], text.count("\n", 0, start))
        entries += found
    # A first piece that is no entry, such as a broken comment, was what made the text unreadable.
    broken = any(entry.troubles for entry in entries)
    return entries, [] if broken or trouble is None else [trouble]


def _read_piece(piece: str, before: int) -> tuple[list[Entry], Trouble | None]:
    """Return the entries of a piece of a file that stands behind so many lines, and what is wrong with it."""
    found, trouble = _read("\n" * before + piece)
    if trouble is None:
        return found, None
    name = _NAME.search(piece)
    return [Entry(before + 1, None, name[1] if name else "", (trouble,))], trouble


def _read(text: str) -> tuple[list[Entry], Trouble | None]:
    import yaml

    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return [], _not_yaml(error, 1)
    if top is None or (isinstance(top, yaml.ScalarNode) and top.tag == "tag:yaml.org,2002:null"):
        return [], None
    if isinstance(top, yaml.SequenceNode):
        return [_entry(node) for node in top.value], None
    kind = "mapping" if isinstance(top, yaml.MappingNode) else "single value"
    line = top.start_mark.line + 1
    return [], Trouble(line, "", f"holds a {kind}, not a list of cases", "start each case with '- case_name:'")


def _entry(node: yaml.Node) -> Entry:
    import yaml

    line = node.start_mark.line + 1
    twice = tuple(_duplicates(node))
    try:
        data = yaml.SafeLoader("").construct_document(node)
    # PyYAML lets the errors of a bad value (`!!bool 5`, a 13th month, endless nesting) through as they come.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        return Entry(line, None, _named(node), (*twice, _not_yaml(error, line)), node)
    return Entry(line, data, _named(node), twice, node)


def _named(node: yaml.Node) -> str:
    names = [str(value.value) for key, value in _pairs(node) if key.value == "case_name"]
    return names[0] if names and re.fullmatch(r"\w[\w.+-]*", names[0]) else ""


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return keys and values of a mapping; none of any other node."""
    if node is None or not isinstance(node.value, list):
        return []
    return [pair for pair in node.value if isinstance(pair, tuple)]


def _not_yaml(error: Exception, line: int) -> Trouble:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    reason = one_line(problem or error)
    if mark is None:
        return Trouble(line, "", f"not usable YAML ({type(error).__name__}: {reason})", "correct the value")
    return Trouble(mark.line + 1, "", f"not YAML: {reason}", "correct the line")


def _duplicates(top: yaml.Node) -> Iterator[Trouble]:
    """Yield the keys that a mapping has twice: a plain load would silently keep the last."""
    waiting, seen = [top], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        pairs = _pairs(node)
        waiting += [value for _, value in pairs] or node.value
        keys: set[str] = set()
        for key, _ in pairs:
            if isinstance(key.value, str) and key.value in keys:
                yield Trouble(key.start_mark.line + 1, key.value, "is given twice", "keep one of the two")
            keys.add(str(key.value))
