"""Names of the files that a process with ``--resume`` opens for reading, from its first import of ``utils`` on.

They are recorded by an audit hook (:pep:`578`), which cannot be removed and makes every audited call slower (``id``
from 0.1 to 0.5 us). So it is added only if the flag is on the command line, or by the first call of :func:`listen`.
"""

from __future__ import annotations

import os
import sys
import time

MOST = 20_000
"""Largest number of recorded names per set."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

begun = time.time_ns()
"""Start of the recording before the first run."""

_first = set[str]()
_heard: list[set[str]] = [_first]
_added: list[bool] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _heard:
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & _WRITING):
            for one in _heard:
                if len(one) < MOST:
                    one.add(os.fsdecode(path))


def listen(names: set[str]) -> None:
    """Add the names of files opened from now on to a set."""
    add_hook()
    _heard.append(names)


def leave(names: set[str]) -> None:
    """Stop adding names to a set."""
    _heard[:] = [one for one in _heard if one is not names]


def before_first_run() -> set[str]:
    """Return the files opened before the first run of this process, once; later calls return an empty set."""
    found = set(_first)
    _first.clear()
    leave(_first)
    return found


def add_hook() -> None:
    """Add the audit hook, once."""
    if not _added:
        _added.append(True)
        sys.addaudithook(_hook)


if any(word.startswith("--r") for word in sys.argv[1:]):  # --resume and its abbreviations
    add_hook()
