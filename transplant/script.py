"""Python code parsed by libcst, with spans, parents and resolution of names for the rules."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import metadata

from transplant.edits import KEPT, TODO, Edit, Finding, Lines
from transplant.source import NotPythonError

if TYPE_CHECKING:
    from libcst.metadata.scope_provider import BaseAssignment, Scope

_FEED = re.compile(r"(?<![^\r\n])[ \t\x0c]*\x0c(?=[ \t]*[^\s#])")
_RETURN = re.compile(r"\r(?!\n)")

_DEPTH = 8
"""Maximum number of assignments followed to resolve a name."""


class Script:
    """Syntax tree of a text, with the results of the rules: ``edits`` and ``findings``.

    Raises:
        NotPythonError: libcst cannot parse it, or cannot reproduce it exactly.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.edits: list[Edit] = []
        self.findings: list[Finding] = []
        self._replaced: list[tuple[int, int]] = []  # spans of edits, sorted and disjoint
        self._found: dict[Finding, None] = {}
        self._starts: list[tuple[int, int]] = []  # of findings, in order
        self._longest = 0
        self._bound: dict[tuple[int, str], list[BaseAssignment]] = {}
        self._full: dict[tuple[int, str, int], str | None] = {}
        try:
            clean, self._removed = _without_feeds(text)
            self._clean_lines = Lines(clean)
            module = cst.parse_module(clean)
            self.module: cst.Module = module
            wrapper = metadata.MetadataWrapper(module, unsafe_skip_copy=True)
            kinds = (metadata.PositionProvider, metadata.ParentNodeProvider, metadata.ScopeProvider)
            found = wrapper.resolve_many(kinds)
        except cst.ParserSyntaxError as error:
            raise NotPythonError(f"does not parse ({error.message}); repair it first", error.raw_line) from error
        except RecursionError as error:
            raise NotPythonError("is nested too deeply to be parsed; migrate it by hand") from error
        self._positions: Mapping[Any, Any] = found[kinds[0]]
        self._parents: Mapping[Any, Any] = found[kinds[1]]
        self._scopes: Mapping[Any, Any] = found[kinds[2]]
        self.nodes = self._in_order()
        if any(isinstance(node, cst.Name) and self.code(node) != node.value for node in self.nodes):
            raise NotPythonError("has positions that the parser does not report exactly; migrate it by hand")
        self._values = dict(_assigned(self.nodes))

    def _in_order(self) -> list[cst.CSTNode]:
        """Return the nodes in the order of the text, without white space and punctuation."""
        kinds = (cst.BaseExpression, cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.BaseFormattedStringContent)
        more = (cst.Param, cst.Arg, cst.SimpleStatementLine, cst.SimpleStatementSuite)
        found = [node for node in self._parents if isinstance(node, (*kinds, *more))]
        return sorted(found, key=lambda node: self.span(node)[0])

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return start and end of a node, in characters."""
        found: metadata.CodeRange = self._positions[node]
        return (
            self._original(self._clean_lines.offset(found.start.line, found.start.column)),
            self._original(self._clean_lines.offset(found.end.line, found.end.column)),
        )

    def _original(self, offset: int) -> int:
        return offset + sum(count for at, count in self._removed if at <= offset)

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the parent of a node; ``None`` for the module."""
        found: cst.CSTNode | None = self._parents.get(node)
        return found

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of a node, the nearest first."""
        found = self.parent(node)
        while found is not None:
            yield found
            found = self.parent(found)

    def bindings(self, name: cst.Name) -> Sequence[BaseAssignment]:
        """Return the bindings of a name at its position."""
        scope: Scope | None = self._scopes.get(name)
        if scope is None:
            return []
        key = (id(scope), name.value)
        if key not in self._bound:  # cached: a name may be bound and used thousands of times
            self._bound[key] = list(scope[name.value])
        return self._bound[key]

    def is_imported(self, name: cst.Name) -> bool:
        """Return whether an import binds a name at its position."""
        return self.dotted(name) is not None and any(
            isinstance(getattr(one, "node", None), (cst.Import, cst.ImportFrom)) for one in self.bindings(name)
        )

    def dotted(self, node: cst.CSTNode | None, depth: int = _DEPTH) -> str | None:
        """Return the full name of a name or attribute, resolving imports and plain assignments.

        Returns ``None`` for a call's result, a parameter, and anything else that does not come from an import.
        """
        if isinstance(node, cst.Attribute):
            base = self.dotted(node.value, depth)
            kept = node.attr.value == "torch"  # a package stored in an object: self.torch.cuda
            return f"{base}.{node.attr.value}" if base else "torch" if kept else None
        if not isinstance(node, cst.Name) or depth == 0:
            return None
        key = (id(self._scopes.get(node)), node.value, depth)
        if key not in self._full:
            self._full[key] = self._of_name(node, depth)
        return self._full[key]

    def _of_name(self, node: cst.Name, depth: int) -> str | None:
        bound = [one for one in self.bindings(node) if not isinstance(one, metadata.BuiltinAssignment)]
        for one in bound:
            found = self._stands_for(one, node.value, depth)
            if found:
                return found
        return "torch" if node.value == "torch" and not bound else None  # from a star import

    def _stands_for(self, one: BaseAssignment, name: str, depth: int) -> str | None:
        where = getattr(one, "node", None)
        if isinstance(where, (cst.Import, cst.ImportFrom)):
            return imported(where, name)
        value = self._values.get(where) if where is not None else None
        return self.dotted(value, depth - 1) if isinstance(value, (cst.Name, cst.Attribute)) else None

    def taken(self, start: int, end: int) -> bool:
        """Return whether a rule changed something in a span."""
        at = bisect_left(self._replaced, (end, end))
        return at > 0 and self._replaced[at - 1][1] > start

    def has_finding(self, start: int, end: int) -> bool:
        """Return whether a finding covers a span."""
        at = bisect_right(self._starts, (start, len(self.text)))
        while at and self._starts[at - 1][0] >= start - self._longest:
            at -= 1
            if self._starts[at][1] >= end:
                return True
        return False

    def edit(self, start: int, end: int, new: str, rule: str, why: str) -> bool:
        """Replace a span unless an earlier rule did; return whether it is replaced now."""
        if start == end:
            raise ValueError(f"the span at character {start} is empty; use insert for {new!r}")
        if self.taken(start, end):
            return False
        self.edits.append(Edit(start, end, self.text[start:end], new, rule, why))
        insort(self._replaced, (start, end))
        return True

    def replace(self, node: cst.CSTNode, new: str, rule: str, why: str) -> bool:
        """Replace a node."""
        return self.edit(*self.span(node), new, rule, why)

    def insert(self, offset: int, new: str, rule: str, why: str) -> None:
        """Insert text; whole lines are placed before words inserted at the same position."""
        there = [one for one in self.edits if one.start == one.end == offset]
        words = [one for one in there if not one.new.endswith(("\n", "\r"))]
        lines = [one for one in there if one not in words]
        whole = new.endswith(("\n", "\r"))
        beside = words[-1:] if whole else sorted(lines)[-1:]
        if not beside:
            self.edits.append(Edit(offset, offset, "", new, rule, why))
            return
        first, second = ((new, rule, why), beside[0]) if whole else (beside[0], (new, rule, why))
        texts, rules, whys = zip(*map(_words, (first, second)), strict=True)
        self.edits.remove(beside[0])
        joined = (", ".join(dict.fromkeys(rules)), "; ".join(dict.fromkeys(whys)))
        self.edits.append(Edit(offset, offset, "", "".join(texts), *joined))

    def inverse(self) -> list[Edit]:
        """Return the edits that restore the old text from the new one."""
        found, moved = [], 0
        for edit in sorted(self.edits):
            start = edit.start + moved
            found.append(Edit(start, start + len(edit.new), edit.new, edit.old, edit.rule, edit.why))
            moved += len(edit.new) - len(edit.old)
        return found

    def todo(self, node: cst.CSTNode, reason: str, fix: str) -> None:
        """Add a finding for manual work."""
        self._find(node, TODO, reason, fix)

    def todo_once(self, node: cst.CSTNode, reason: str, fix: str) -> None:
        """Add a finding for manual work, unless the file has one with this reason."""
        if all(found.reason != reason for found in self.findings):
            self.todo(node, reason, fix)

    def keep(self, node: cst.CSTNode, reason: str) -> None:
        """Add a finding for an unchanged node."""
        self._find(node, KEPT, reason, "")

    def _find(self, node: cst.CSTNode, kind: str, reason: str, fix: str) -> None:
        start, end = self.span(node)
        found = Finding(start, end, kind, self.text[start:end], reason, fix)
        if found not in self._found:
            self._found[found] = None
            self.findings.append(found)
            insort(self._starts, (start, end))
            self._longest = max(self._longest, end - start)


def _words(given: Edit | tuple[str, str, str]) -> tuple[str, str, str]:
    """Return new text, rule and reason of a change."""
    return (given.new, given.rule, given.why) if isinstance(given, Edit) else given


def _without_feeds(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text whose positions libcst reports correctly, and the removed parts: offset in the new text, and
    length.

    libcst ignores a form feed before the first word of a line, and line endings that are a single carriage return.
    """
    removed: list[tuple[int, int]] = []
    pieces, last, gone = [], 0, 0
    for match in _FEED.finditer(text):
        removed.append((match.start() - gone, len(match[0])))
        pieces.append(text[last : match.start()])
        last, gone = match.end(), gone + len(match[0])
    return _RETURN.sub("\n", "".join([*pieces, text[last:]])), removed


def _assigned(nodes: Sequence[cst.CSTNode]) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Yield the targets of plain assignments with their values."""
    for node in nodes:
        if isinstance(node, cst.Assign):
            yield from ((target.target, node.value) for target in node.targets)
        elif isinstance(node, (cst.AnnAssign, cst.NamedExpr)) and node.value is not None:
            yield node.target, node.value


def imported(statement: cst.Import | cst.ImportFrom, name: str) -> str | None:
    """Return the full name that an import binds to a name."""
    if isinstance(statement.names, cst.ImportStar):
        return None
    for alias in statement.names:
        full = path_of(alias.name)
        bound = alias.evaluated_alias or (full.split(".")[0] if isinstance(statement, cst.Import) else full)
        if bound != name:
            continue
        if isinstance(statement, cst.ImportFrom):
            return f"{module_path(statement)}.{full}"
        return full if alias.asname else bound
    return None


def module_path(statement: cst.ImportFrom) -> str:
    """Return the module of an import, with its leading dots."""
    return "." * len(statement.relative) + (path_of(statement.module) if statement.module else "")


def path_of(node: cst.CSTNode) -> str:
    """Return a dotted name as written; "" for other expressions."""
    if isinstance(node, cst.Attribute):
        base = path_of(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return node.value if isinstance(node, cst.Name) else ""
