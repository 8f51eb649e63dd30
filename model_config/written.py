"""Handling of untrusted files that steps write: only regular files of a limited size are kept for later reading."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.trees import walk

STRANGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that a JSON file with unexpected content can cause."""

LOGS = (".stdout", ".stderr")

MOST_JSON = 64 << 20
MOST = 256 << 20
"""Maximum bytes that are read of a JSON file, and of any other file."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large.
        ValueError: invalid JSON, or nesting too deep.
    """
    try:
        return json.loads(read_regular(path, MOST_JSON).decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error


def settle(folder: Path, most_log: int) -> str:
    """Remove entries other than regular files and folders from a folder that steps write to.

    Reading a pipe or device could block forever, and a symbolic or hard link could redirect later writes of the check.

    Args:
        most_log: bytes that a log (``.stdout``, ``.stderr``) may have.

    Returns:
        One line that lists the removed entries; empty if there were none.
    """
    found = []
    for place, folders, files in walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            try:
                what = _strange(os.lstat(path), most_log if path.suffix in LOGS else MOST)
                if what:
                    path.unlink()
                    found.append(f"{path.relative_to(folder)} is {what}")
            except OSError as error:  # it cannot be removed
                found.append(f"{path.relative_to(folder)}: {error.strerror}")
    if not found:
        return ""
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"left invalid files in the check's folder ({'; '.join(found[:3])}{more}); write results as files"


def _strange(found: os.stat_result, most: int) -> str:
    """Return the type of an invalid entry; empty for a folder or a regular file within the size limit."""
    if stat.S_ISDIR(found.st_mode):
        return ""
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, a socket or a device"
    if found.st_nlink > 1:
        return "a second name of another file"
    return f"larger than {most >> 20} MiB" if found.st_size > most else ""
