"""Names of the files that a process with ``--resume`` opens for reading, from its first import of ``utils`` on.

They come from an audit hook (:pep:`578`), which cannot be taken out again and makes every audited call slower (``id``
from 0.1 to 0.5 us). So it is added where a flag asks for it, or where the names are first listened to.
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
_added: list[bool] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _heard:
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & _WRITING):
            for one in _heard:
                if len(one) < MOST:
                    one.add(os.fsdecode(path))


def listen(names: set[str]) -> None:
    """Add to a set what is opened from now on."""
    add_hook()
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


def add_hook() -> None:
    """Hear of opened files from now on; only the first call does something."""
    if not _added:
        _added.append(True)
        sys.addaudithook(_hook)


if any(word.startswith("--r") for word in sys.argv[1:]):  # --resume, and what argparse takes for it
    add_hook()
