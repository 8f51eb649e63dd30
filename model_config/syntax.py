"""Python files as trees, parsed by one thread at a time."""

from __future__ import annotations

import ast
import threading

MOST = 1_000_000
"""Characters of a file that is parsed: a tree takes some hundred times the memory of its text."""

LONGEST_LINE = 20_000
"""Characters of a line: the parser takes quadratic time over the parts of a name that is imported."""

_lock = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's contents.

    Python 3.11 counts the depth of a tree once for all threads: where two parse at a time and a garbage collection lets
    the other one in, it fails with a ``SystemError``.

    Raises:
        SyntaxError: it is no Python. ValueError: it has null bytes, is nested too deeply, or longer than
            :data:`MOST`, or a line of it than :data:`LONGEST_LINE`.
    """
    if len(source) > MOST:
        raise ValueError(f"it is longer than {MOST // 1_000_000} MB; split it")
    if _has_long_line(source):
        raise ValueError(f"a line of it, with those that continue it, is longer than {LONGEST_LINE} characters")
    try:
        with _lock:
            return ast.parse(source)
    except (RecursionError, MemoryError) as error:  # the parser's own limits
        raise ValueError("it is nested too deeply; write it in several statements") from error


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
