"""Python files as trees, parsed by one thread at a time."""

from __future__ import annotations

import ast
import threading

_lock = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's contents.

    Python up to 3.12 counts the depth of a tree once for all threads, and fails with a ``SystemError`` where two parse
    at a time and a garbage collection lets the other one in: https://github.com/python/cpython/issues/106905.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python, or nested too deep.
    """
    with _lock:
        return ast.parse(source)
