"""Static check that regular expressions match in linear time, from their syntax trees.

A backtracking search of a text without a match takes more than linear time exactly where the expression can read a
text in many ways: where its automaton is *infinitely ambiguous* (A. Weber and H. Seidl, On the degree of ambiguity of
finite automata, 1991): there are states p and q and a text w that leads from p to p, from p to q, and from q to q. The
places where a search may begin are a state too: so ``a+b`` is searched for in quadratic time, and matched in linear
time. It is exponential where w leads from p to p in two ways.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

try:
    from re import _constants as ops, _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as ops  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

METHODS = {
    **dict.fromkeys(("search", "findall", "finditer", "sub", "subn", "split"), "search"),
    "match": "match",
    "fullmatch": "fullmatch",
}
"""Functions that apply a pattern, and their mode."""

_LETTERS = "\0\n\r\t \u00a0!-./09AZ_az\u00e9\u0660\u4e2d"
_CLASSES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
_MANY = 24
"""Maximum copies of a repeated part; larger bounds count as unbounded."""

_START = 0
"""Initial state of a search."""


class NotAnalysedError(Exception):
    """The pattern has an unsupported part: a group reference, or a loop in a look-ahead."""


class _Automaton:
    """Positions of single characters in a pattern, and which can follow which (Glushkov, 1961)."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        text = pattern.pattern
        self.flags = pattern.flags
        self.tree = parser.parse(text, self.flags & ~re.DEBUG)
        self.letters = sorted({*_LETTERS, *_named(self.tree)})
        self.reads: list[frozenset[str]] = [frozenset(self.letters)]
        self.follows: dict[int, dict[int, int]] = {}
        """Followers of each position, with their number of ways, at most 2."""
        self.begins, ends, self.nullable = self._sequence(self.tree)
        self.ends = {place for place, sure in ends.items() if sure}

    def _sequence(self, parts: Any) -> tuple[dict[int, int], dict[int, bool], bool]:
        """Return where a sequence begins (in how many ways), where it ends (for sure, or if a test holds), if empty."""
        first: dict[int, int] = {}
        last: dict[int, bool] = {}
        empty = True
        for operator, value in parts:
            begins, ends, nullable = self._part(operator, value)
            self._join(last, begins)
            if empty:
                _add(first, begins)
            if operator is ops.AT or operator in (ops.ASSERT, ops.ASSERT_NOT):
                last = dict.fromkeys(last, False)
                self.tested = True
            elif nullable:
                last = {**last, **ends}
            else:
                last = ends
            empty = empty and nullable
        return first, last, empty

    def _join(self, last: Mapping[int, bool], begins: Mapping[int, int]) -> None:
        for place in last:
            _add(self.follows.setdefault(place, {}), begins)

    def _part(self, operator: Any, value: Any) -> tuple[dict[int, int], dict[int, bool], bool]:
        if operator in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
            place = len(self.reads)
            self.reads.append(frozenset(one for one in self.letters if _reads(operator, value, one, self.flags)))
            return {place: 1}, {place: True}, False
        if operator is ops.AT:
            return {}, {}, True
        if operator in (ops.ASSERT, ops.ASSERT_NOT):
            if _loops(value[1]):
                raise NotAnalysedError("a loop in a look-ahead or look-behind")
            return {}, {}, True
        if operator is ops.SUBPATTERN:
            return self._sequence(value[-1])
        if operator is ops.BRANCH:
            return self._branch([self._sequence(one) for one in value[1]])
        if str(operator) == "ATOMIC_GROUP":
            return self._sequence(value)
        if operator in (ops.MAX_REPEAT, ops.MIN_REPEAT) or str(operator) == "POSSESSIVE_REPEAT":
            return self._repeat(*value)
        raise NotAnalysedError(str(operator))

    def _branch(
        self, ways: Sequence[tuple[dict[int, int], dict[int, bool], bool]]
    ) -> tuple[dict[int, int], dict[int, bool], bool]:
        first: dict[int, int] = {}
        last: dict[int, bool] = {}
        for begins, ends, _ in ways:
            _add(first, begins)
            last |= ends
        return first, last, any(nullable for _, _, nullable in ways)

    def _repeat(self, least: int, most: Any, inner: Any) -> tuple[dict[int, int], dict[int, bool], bool]:
        unbounded = most is ops.MAXREPEAT or most > _MANY
        copies = min(least, _MANY) if unbounded else int(most)
        first: dict[int, int] = {}
        last: dict[int, bool] = {}
        before: dict[int, bool] = {}
        empty = True
        for number in range(max(copies, 1)):
            begins, ends, nullable = self._sequence(inner)
            if unbounded and number == max(copies, 1) - 1:
                self._join(ends, begins)
            self._join(before, begins)
            if empty:
                _add(first, begins)
            empty = empty and nullable
            before = {**before, **ends} if nullable else ends
            if number >= least - 1:
                last |= before
        return first, last, empty or least == 0

    def steps(self, place: int, letter: str, searching: bool) -> Iterator[int]:
        """Yield the positions that a character leads to."""
        if place == _START:
            if searching:
                yield _START
            following: Mapping[int, int] = self.begins
        else:
            following = self.follows.get(place, {})
        yield from (other for other in following if letter in self.reads[other])


def _add(found: dict[int, int], more: Mapping[int, int]) -> None:
    for place, ways in more.items():
        found[place] = min(2, found.get(place, 0) + ways)


def _named(parts: Any) -> Iterator[str]:
    """Yield the characters that a pattern names, and the neighbours of its ranges."""
    for operator, value in parts:
        if operator in (ops.LITERAL, ops.NOT_LITERAL):
            yield from (chr(value), chr(value).lower(), chr(value).upper()[0])
        elif operator is ops.RANGE:
            yield from map(chr, (max(0, value[0] - 1), *value, min(0x10FFFF, value[1] + 1)))
        elif operator is ops.IN:
            yield from _named(value)
        elif operator is ops.BRANCH:
            for one in value[1]:
                yield from _named(one)
        elif isinstance(value, tuple) and value and isinstance(value[-1], parser.SubPattern):
            yield from _named(value[-1])


def _loops(parts: Any) -> bool:
    for operator, value in parts:
        if "REPEAT" in str(operator) and (value[1] is ops.MAXREPEAT or value[1] > _MANY or _loops(value[2])):
            return True
        inner = value[1] if operator is ops.BRANCH else [value[-1]] if operator is ops.SUBPATTERN else []
        if any(map(_loops, inner)):
            return True
    return False


def _reads(operator: Any, value: Any, letter: str, flags: int) -> bool:
    """Return whether a position matches a character."""
    forms = {letter, letter.lower(), letter.upper()} if flags & re.IGNORECASE else {letter}
    if operator is ops.LITERAL:
        return chr(value) in forms
    if operator is ops.NOT_LITERAL:
        return chr(value) not in forms
    if operator is ops.ANY:
        return letter != "\n" or bool(flags & re.DOTALL)
    negated = value[0][0] is ops.NEGATE
    found = any(_in(kind, what, one, flags) for kind, what in value[negated:] for one in forms)
    return found is not negated


def _in(kind: Any, what: Any, letter: str, flags: int) -> bool:
    if kind is ops.LITERAL:
        return chr(what) == letter
    if kind is ops.RANGE:
        return what[0] <= ord(letter) <= what[1]
    name = str(what).removeprefix("CATEGORY_")
    return re.fullmatch(_CLASSES[name], letter, flags & re.ASCII) is not None


def _anchored(parts: Any, flags: int) -> bool:
    """Return whether a pattern is anchored at the start."""
    for operator, value in parts:
        if operator is ops.AT:
            return value is ops.AT_BEGINNING_STRING or (value is ops.AT_BEGINNING and not flags & re.MULTILINE)
        return operator is ops.SUBPATTERN and _anchored(value[-1], flags)
    return False


@cache
def trouble(text: str | bytes, flags: int, method: str) -> str:
    """Return why a pattern may take superlinear time, or an empty string.

    Args:
        method: ``search`` (and what is like it), ``match`` or ``fullmatch``.
    """
    readable = text.decode("latin-1") if isinstance(text, bytes) else text
    pattern = re.compile(readable, flags & ~re.UNICODE)
    try:
        automaton = _Automaton(pattern)
    except NotAnalysedError as error:
        return f"cannot be analysed: {error}"
    searching = method == "search" and not _anchored(automaton.tree, pattern.flags)
    done = automaton.ends if method != "fullmatch" else set()
    looping = [place for place in range(len(automaton.reads)) if _reaches_itself(automaton, place, searching)]
    for first in looping:
        if first not in done and _doubled(automaton, first, looping):
            return "exponential: a loop in a loop reads the same text in two ways"
        for second in looping:
            if first != second and not {first, second} & done and _ambiguous(automaton, first, second, done):
                where = "from every place of the text" if first == _START else "by two loops in a row"
                return f"quadratic or worse: the same text is read {where}"
    return ""


def _reaches_itself(automaton: _Automaton, place: int, searching: bool) -> bool:
    if place == _START:
        return searching
    seen: set[int] = set()
    waiting = [place]
    while waiting:
        for other in automaton.follows.get(waiting.pop(), {}):
            if other == place:
                return True
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return False


def _doubled(automaton: _Automaton, place: int, looping: Sequence[int]) -> bool:
    """Return whether a text leads from a position to itself in two ways."""
    inside = set(looping) - {_START}
    if place not in inside:
        return False
    if any(automaton.follows.get(one, {}).get(other) == 2 for one in inside for other in inside):
        return True
    seen = {(place, place, False)}
    waiting = deque(seen)
    while waiting:
        one, other, apart = waiting.popleft()
        for letter in automaton.letters:
            for a in automaton.steps(one, letter, False):
                for b in automaton.steps(other, letter, False):
                    if a == b == place and apart:
                        return True
                    found = (a, b, apart or a != b)
                    if {a, b} <= inside and found not in seen:
                        seen.add(found)
                        waiting.append(found)
    return False


def _ambiguous(automaton: _Automaton, first: int, second: int, done: Set[int]) -> bool:
    """Return whether one text leads from a position to itself, from it to another, and from that to itself.

    Args:
        done: positions after which the pattern has matched: a search that has been there begins nowhere else.
    """
    searching = first == _START
    closed = done if searching else frozenset[int]()
    begin, end = (first, first, second), (first, second, second)
    seen = {begin}
    waiting = deque(seen)
    while waiting:
        places = waiting.popleft()
        for letter in automaton.letters:
            ways = [[one for one in automaton.steps(place, letter, searching) if one not in closed] for place in places]
            for found in ((a, b, c) for a in ways[0] for b in ways[1] for c in ways[2]):
                if found == end:
                    return True
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
    return False


# -------------------------------------------------------------------------------------------------- patterns of a file


class Use(NamedTuple):
    """A pattern and how it is applied."""

    line: int
    pattern: re.Pattern[Any]
    method: str


def uses(tree: ast.Module, module: ModuleType) -> Iterator[Use | int]:
    """Yield every use of a pattern in a module; only the line if the pattern is built at run time."""
    named = {name: value for name, value in vars(module).items() if isinstance(value, re.Pattern)}
    applied: dict[str, set[str]] = {}
    elsewhere: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, owner = node.func.attr, ast.unparse(node.func.value)
        if owner == "re" and name in (*METHODS, "compile"):
            yield from _called(node, name, module)
        elif owner in named and name in METHODS:
            applied.setdefault(owner, set()).add(METHODS[name])
        elif name in METHODS and name != "split":  # which is a text's, mostly
            elsewhere.add(METHODS[name])
    for name, pattern in named.items():
        for method in sorted(applied.get(name, {"search"})):
            yield Use(0, pattern, method)
    inner = [found for name, value in vars(module).items() if not name.startswith("__") for found in _within(value)]
    for pattern in inner:
        for method in sorted(elsewhere):
            yield Use(0, pattern, method)


def _called(node: ast.Call, name: str, module: ModuleType) -> Iterator[Use | int]:
    text = _text(node.args[0], module) if node.args else None
    if name == "compile" and _at_top(node, module):
        return
    if text is None:
        yield node.lineno
        return
    flags = 0
    for argument in (*node.args[1:], *(keyword.value for keyword in node.keywords)):
        for part in ast.walk(argument):
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "re":
                flags |= getattr(re, part.attr)
    yield Use(node.lineno, re.compile(text, flags), METHODS.get(name, "search"))


def _at_top(node: ast.Call, module: ModuleType) -> bool:
    """Return whether a pattern is compiled on import, and so is a value of the module."""
    return node.col_offset == 0 or getattr(node, "top", False)


def _text(node: ast.expr, module: ModuleType) -> Any:
    """Return the text of a literal pattern, or ``None``."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and isinstance(value := getattr(module, node.id, None), (str, re.Pattern)):
        return value if isinstance(value, str) else value.pattern
    return None


def _within(value: Any) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a table."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    for one in inner:
        if isinstance(one, re.Pattern):
            yield one
        else:
            yield from _within(one)


def mark_top(tree: ast.Module) -> None:
    """Collect the calls that run on import."""
    inside = {
        id(call)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for call in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in inside:
            node.top = True  # type: ignore[attr-defined]
