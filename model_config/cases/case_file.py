"""Entries of a ``model.yaml`` with line numbers; an invalid entry does not affect the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from tecoinfer_modelzoo.text import shortened
from tecoinfer_modelzoo.yaml_files import YamlError, build_yaml, check_yaml, compose_yaml, keys_twice

if TYPE_CHECKING:
    import yaml

MOST_ENTRIES = 2000
"""Maximum number of cases of a file; the zoo's own has about a hundred."""

MOST_TROUBLES = 20
"""Maximum number of problems reported per entry; an entry with more is invalid."""

LONGEST_NAME = 100
"""Maximum characters of a case's name, which is part of folder and log names."""

MOST_CHARACTERS = 4 << 20
"""Maximum characters of all entries together, with aliases expanded."""

_ENTRY = re.compile(r"^-(?=\s|$)", re.MULTILINE)
"""Start of a list entry."""

_NAME = re.compile(r"""case_name:[ ]*["']?([\w.+-]+)""")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem: line (from 1; 0: the whole file), key (or empty), reason and fix."""

    line: int
    key: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list.

    Attributes:
        line: its first line.
        data: its content as plain types; ``None`` if it cannot be read (see ``troubles``).
        name: its ``case_name``, guessed from the text if it cannot be parsed; empty if missing.
        troubles: duplicate keys and YAML errors.
        node: its YAML node, for :meth:`line_of`.
        before: number of lines of the file before the parsed text.
    """

    line: int
    data: Any = None
    name: str = ""
    troubles: tuple[Trouble, ...] = ()
    node: yaml.Node | None = field(default=None, repr=False)
    before: int = 0

    def line_of(self, key: str) -> int:
        """Return the line of a key such as ``run_export.params``, or of its nearest existing parent."""
        node, line = self.node, self.line
        for part in key.split("."):
            found = next((pair for pair in _pairs(node) if str(pair[0].value) == part), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1 + self.before, found[1]
        return line


def read_entries(text: str) -> tuple[list[Entry], list[Trouble]]:
    """Return the entries of a file and the problems of the file as a whole.

    If the text is not valid YAML, each piece that starts with ``- `` is parsed separately.
    """
    starts = [match.start() for match in _ENTRY.finditer(text)]
    if len(starts) > MOST_ENTRIES:
        return [], [Trouble(0, "", f"has {len(starts)} cases; {MOST_ENTRIES} are read", "split the file")]
    entries, trouble = _read(text)
    if trouble is None or not starts:
        return entries, [trouble] if trouble else []
    entries = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        found, trouble = _read_piece(text[start:end], text.count("\n", 0, start))
        entries += found
    # A first piece without an entry, such as a broken comment, caused the error.
    broken = any(entry.troubles for entry in entries)
    return entries, [] if broken or trouble is None else [trouble]


def _read_piece(piece: str, before: int) -> tuple[list[Entry], Trouble | None]:
    """Return the entries of a piece of a file with ``before`` lines in front of it, and its problem."""
    found, trouble = _read(piece, before)
    if trouble is None:
        return found, None
    name = _NAME.search(piece)
    return [Entry(before + 1, None, name[1][:LONGEST_NAME] if name else "", (trouble,))], trouble


def _read(text: str, before: int = 0) -> tuple[list[Entry], Trouble | None]:
    """Return the entries of a text with ``before`` lines in front of it, and the reason if it cannot be read."""
    import yaml

    try:
        top = compose_yaml(text)
    except YamlError as error:
        return [], _not_yaml(error, 1, before)
    if top is None or (isinstance(top, yaml.ScalarNode) and top.tag == "tag:yaml.org,2002:null"):
        return [], None
    if isinstance(top, yaml.SequenceNode):
        return list(_entries(top.value, before)), None
    kind = "mapping" if isinstance(top, yaml.MappingNode) else "single value"
    line = top.start_mark.line + 1 + before
    return [], Trouble(line, "", f"holds a {kind}, not a list of cases", "start each case with '- case_name:'")


def _entries(nodes: Sequence[yaml.Node], before: int) -> Iterator[Entry]:
    """Yield the entries of a list; once aliases make the file too large, with a problem instead of data."""
    left = MOST_CHARACTERS
    for node in nodes:
        line = node.start_mark.line + 1 + before
        try:
            left -= check_yaml(node, left)
            twice = tuple(_twice(key, before) for key in islice(keys_twice(node), MOST_TROUBLES))
            yield Entry(line, build_yaml(node), _named(node), twice, node, before)
        except YamlError as error:
            yield Entry(line, None, _named(node), (_not_yaml(error, line - before, before),), node, before)


def _twice(key: yaml.Node, before: int) -> Trouble:
    return Trouble(
        key.start_mark.line + 1 + before, shortened(str(key.value), 80), "is given twice", "keep one of the two"
    )


def _named(node: yaml.Node) -> str:
    names = [str(value.value) for key, value in _pairs(node) if key.value == "case_name"]
    return names[0] if names and len(names[0]) <= LONGEST_NAME and re.fullmatch(r"\w[\w.+-]*", names[0]) else ""


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return keys and values of a mapping; empty for any other node."""
    if node is None or not isinstance(node.value, list):
        return []
    return [pair for pair in node.value if isinstance(pair, tuple)]


def _not_yaml(error: YamlError, line: int, before: int) -> Trouble:
    what, _, fix = error.reason.partition("; ")
    return Trouble((error.line or line) + before, "", f"not YAML: {what}", fix or "correct the line")
