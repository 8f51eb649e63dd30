"""Thread-safe parsing of Python files."""

from __future__ import annotations

import ast
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 1_000_000
"""Maximum characters of a parsed file: a tree takes several hundred times the memory of its text."""

LONGEST_LINE = 20_000
"""Maximum characters of a line: the parser needs quadratic time for the parts of an imported dotted name."""

_lock = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's contents.

    Uses a lock: the Python 3.11 parser shares its recursion counter among threads, so that concurrent parsing can fail
    with a ``SystemError`` if a garbage collection switches threads. Collections are off meanwhile: they would take most
    of the time.

    Raises:
        SyntaxError: invalid Python.
        ValueError: null bytes, nesting too deep, or longer than :data:`MOST` or a line than :data:`LONGEST_LINE`.
    """
    if len(source) > MOST:
        raise ValueError(f"it is longer than {MOST // 1_000_000} MB; split it")
    if _has_long_line(source):
        raise ValueError(f"a line of it, with those that continue it, is longer than {LONGEST_LINE} characters")
    try:
        with _lock, _without_collections():
            return ast.parse(source)
    except (RecursionError, MemoryError) as error:  # the parser's own limits
        raise ValueError("it is nested too deeply; write it in several statements") from error


@contextmanager
def _without_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _has_long_line(source: str | bytes) -> bool:
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    length = 0
    for line in text.split("\n"):
        length += len(line)
        if length > LONGEST_LINE:
            return True
        if not line.rstrip("\r").endswith("\\"):
            length = 0
    return False
