"""Python files as trees, parsed by one thread at a time."""

from __future__ import annotations

import ast
import threading

_lock = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's contents.

    Python 3.11 counts the depth of a tree once for all threads: where two parse at a time and a garbage collection lets
    the other one in, it fails with a ``SystemError``.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python, or nested too deep.
    """
    with _lock:
        return ast.parse(source)
