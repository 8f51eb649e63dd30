"""YAML files of unknown origin, read within limits of time and memory.

Rejects valid YAML that the zoo does not need: recursive values, aliases that expand to huge values, numbers of
thousands of digits, and duplicate keys.
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
"""Maximum file size in bytes; the zoo's largest file has an eighth of it."""

MOST_CHARACTERS = 4 << 20
"""Maximum number of characters of all values of a file, with aliases expanded."""

DEEPEST = 100
"""Maximum nesting of lists and mappings."""

_TOO_DEEP = f"lists and mappings are nested deeper than {DEEPEST}; write them flat"

LONGEST_NUMBER = 100
"""Maximum length of an unquoted number."""


class YamlError(ValueError):
    """The text is not YAML, or exceeds a limit; ``reason`` omits the ``line`` (from 1; 0 for the whole file)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason, self.line = reason, line


def yaml_text(path: Path) -> str:
    """Return the text of a file; raise OSError if it is unreadable, YamlError if it is too large or not UTF-8."""
    with open_regular(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise YamlError(f"it is larger than {LARGEST >> 10} KiB; split it, or remove other content")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"byte {error.start} is not UTF-8 text; save the file as UTF-8") from error


_NOT_PLAIN = tuple(f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set"))
"""YAML types that JSON does not have and no file of the zoo uses."""


def read_yaml(path: Path) -> Any:
    """Return the content of a file in plain types, ``None`` if empty; raise OSError or YamlError if it is invalid."""
    top = compose_yaml(yaml_text(path))
    if top is None:
        return None
    check_yaml(top)
    for key in keys_twice(top):
        raise YamlError(f"key {shown_key(key)} is given twice; keep one of the two", key.start_mark.line + 1)
    return build_yaml(top)


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the node tree of a text, ``None`` if empty; raise YamlError if it is not YAML or has several documents."""
    import yaml

    try:
        return yaml.compose(text, Loader=_loader())
    except YamlError:
        raise
    except _errors() as error:
        raise _wrong(error) from error


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's loader with the limit :data:`DEEPEST`; its time is quadratic in the depth of nesting."""
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
    """Return a node's value in plain types after :func:`check_yaml`; raise YamlError if invalid (a 13th month)."""
    import yaml

    try:
        return yaml.SafeLoader("").construct_document(node)
    except _errors() as error:
        raise _wrong(error) from error


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of PyYAML, including the built-in ones of invalid values (`!!bool 5`, a 13th month)."""
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
    """Check a node tree, and return the number of its characters with aliases expanded.

    Raises:
        YamlError: a value contains itself, has more than ``most`` characters, is nested deeper than :data:`DEEPEST`,
            has
            a number longer than :data:`LONGEST_NUMBER`, or is tagged as binary or a set.
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
            raise YamlError("a value holds itself by an alias; write the value out", line)
        if missing:
            open_.add(id(node))
            waiting += missing
            continue
        waiting.pop()
        open_.discard(id(node))
        if node.tag in _NOT_PLAIN:
            raise YamlError(f"a value is tagged !!{node.tag.rpartition(':')[2]}, which is not a plain type", line)
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
    """Yield the items of a list or mapping, including keys."""
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
    """Yield the duplicate keys of mappings, of which a plain load would silently keep the last."""
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
    """Return a key as text for a message."""
    return repr(shortened(str(key.value), 60)) if isinstance(key.value, str) else "that is not a string"
