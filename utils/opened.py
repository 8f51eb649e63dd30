"""Names of the files that a process opens for reading: of a script's own, from its first import of ``utils`` on.

Python tells every file that is opened to an audit hook (:pep:`578`), which stays. Imported with ``utils``, so it costs
next to nothing.
"""

from __future__ import annotations

import os
import sys
import time

MOST = 20_000
"""Names that are kept of one part of a process."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

begun = time.time_ns()
"""When the first part began."""

_first = set[str]()
_heard: list[set[str]] = [_first]


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _heard:
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & _WRITING):
            for one in _heard:
                if len(one) < MOST:
                    one.add(os.fsdecode(path))


def listen(names: set[str]) -> None:
    """Add to a set what is opened from now on."""
    _heard.append(names)


def leave(names: set[str]) -> None:
    """Add nothing to it any more."""
    _heard[:] = [one for one in _heard if one is not names]


def before_first_run() -> set[str]:
    """Return what was opened before the first run of this process, to that run; later ones get nothing."""
    found = set(_first)
    _first.clear()
    leave(_first)
    return found


sys.addaudithook(_hook)
