"""YAML files of people nobody here knows: read within limits, so that no reader behind waits or runs out of memory.

What YAML itself allows and no file of the zoo needs is refused here: values that hold themselves, aliases that stand
for more than a disk holds, numbers of thousands of digits, keys given twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tecoinfer_modelzoo.files import open_regular
from tecoinfer_modelzoo.json_types import Problems
from tecoinfer_modelzoo.text import one_line, shortened

if TYPE_CHECKING:
    import yaml

LARGEST = 512 << 10
"""Bytes of a file; the zoo's largest, with all of its cases, has an eighth of it."""

MOST_CHARACTERS = 4 << 20
"""Characters of the values of a file, each alias counted as what it stands for."""

DEEPEST = 100
"""Lists and mappings inside one another."""

_TOO_DEEP = f"lists and mappings are nested deeper than {DEEPEST}; write them flat"

LONGEST_NUMBER = 100
"""Characters of a number that is not in quotes."""


class YamlError(ValueError):
    """A text that is not YAML, or not within the limits; ``reason`` is without ``line`` (from 1; 0: of the whole)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason, self.line = reason, line


def yaml_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        OSError: it cannot be read, or is no regular file.
        YamlError: it is larger than :data:`LARGEST`, or not UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise YamlError(f"it is larger than {LARGEST >> 10} KiB; split it, or leave out what is no configuration")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"byte {error.start} is not UTF-8 text; save the file as UTF-8") from error


_NOT_PLAIN = tuple(f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set"))
"""Types of YAML that neither JSON nor any file of ours has."""


def read_yaml(path: Path) -> Any:
    """Return what a file says, in plain types; ``None`` for an empty one.

    Raises:
        OSError: it cannot be read, or is no regular file.
        YamlError: it is not YAML, not within the limits, or gives a key twice.
    """
    top = compose_yaml(yaml_text(path))
    if top is None:
        return None
    check_yaml(top)
    for key in keys_twice(top):
        raise YamlError(f"key {shown_key(key)} is given twice; keep one of the two", key.start_mark.line + 1)
    return build_yaml(top)


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the values of a text with their places; ``None`` where it is empty.

    Raises:
        YamlError: it is not YAML, or several documents.
    """
    import yaml

    try:
        return yaml.compose(text, Loader=_loader())
    except YamlError:
        raise
    except _errors() as error:
        raise _wrong(error) from error


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's loader that ends at :data:`DEEPEST`: of hundreds of brackets each costs it more than the last."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.depth > DEEPEST:
                raise YamlError(_TOO_DEEP, self.peek_event().start_mark.line + 1)  # type: ignore[no-untyped-call]
            self.depth += 1
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    return Loader


def build_yaml(node: yaml.Node) -> Any:
    """Return a value in plain types, after :func:`check_yaml`.

    Raises:
        YamlError: it is of a type that is not plain, or says what its type does not have (a 13th month).
    """
    import yaml

    try:
        return yaml.SafeLoader("").construct_document(node)
    except _errors() as error:
        raise _wrong(error) from error


def _errors() -> tuple[type[Exception], ...]:
    """Return what PyYAML raises; the errors of a bad value (`!!bool 5`, a 13th month) it lets through as they come."""
    import yaml

    return (yaml.YAMLError, *Problems)


def _wrong(error: Exception) -> YamlError:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if isinstance(error, RecursionError):
        return YamlError(_TOO_DEEP)
    if problem is None and not isinstance(error, _errors()[0]):
        return YamlError(f"a value cannot be read ({type(error).__name__}: {shortened(one_line(error), 200)})")
    if problem is not None and problem.startswith("but "):
        problem = f"{error.context}, {problem}"  # type: ignore[attr-defined]
    return YamlError(shortened(one_line(problem or error), 200), 0 if mark is None else mark.line + 1)


def check_yaml(top: yaml.Node, most: int = MOST_CHARACTERS) -> int:
    """Check a value with everything in it, and return its characters, each alias counted as what it stands for.

    Raises:
        YamlError: a value holds itself, there are more than ``most`` characters, lists and mappings are nested deeper
            than :data:`DEEPEST`, a number is longer than :data:`LONGEST_NUMBER`, or bytes or a set are meant.
    """
    known: dict[int, tuple[int, int]] = {}
    open_: set[int] = set()
    waiting = [top]
    while waiting:
        node = waiting[-1]
        if id(node) in known:
            waiting.pop()
            continue
        parts = list(_parts(node))
        missing = [part for part in parts if id(part) not in known]
        line = node.start_mark.line + 1
        if any(id(part) in open_ for part in missing):
            raise YamlError("a value holds itself by an alias; write out what is meant", line)
        if missing:
            open_.add(id(node))
            waiting += missing
            continue
        waiting.pop()
        open_.discard(id(node))
        if node.tag in _NOT_PLAIN:
            raise YamlError(f"a value is tagged !!{node.tag.rpartition(':')[2]}, which is no plain type", line)
        characters, depth = _size(node), 0
        for part in parts:
            characters, depth = characters + known[id(part)][0], max(depth, known[id(part)][1] + 1)
        if characters > most:
            raise YamlError(f"its aliases stand for more than {most >> 20} MiB of text; write less", line)
        if depth > DEEPEST:
            raise YamlError(_TOO_DEEP, line)
        known[id(node)] = (characters, depth)
    return known[id(top)][0]


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield what a list or mapping holds, keys too."""
    for part in node.value if isinstance(node.value, list) else ():
        yield from part if isinstance(part, tuple) else (part,)


def _size(node: yaml.Node) -> int:
    if not isinstance(node.value, str):
        return 1
    if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and len(node.value) > LONGEST_NUMBER:
        what = f"a number of {len(node.value)} characters; write fewer, or put a text in quotes"
        raise YamlError(what, node.start_mark.line + 1)
    return len(node.value) + 1


def keys_twice(top: yaml.Node) -> Iterator[yaml.Node]:
    """Yield the keys that a mapping has twice: a plain load would silently keep the last."""
    waiting, seen = [top], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        waiting += _parts(node)
        keys: set[Hashable] = set()
        for part in node.value:
            if isinstance(part, tuple) and isinstance(part[0].value, str):
                if part[0].value in keys:
                    yield part[0]
                keys.add(part[0].value)


def shown_key(key: yaml.Node) -> str:
    """Return a key as a message shows it."""
    return repr(shortened(str(key.value), 60)) if isinstance(key.value, str) else "that is no text"
