"""What steps have written, which may be anything: only plain files of a bounded size are left for those who read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.trees import walk

STRANGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of a JSON file that holds something else than was asked for."""

LOGS = (".stdout", ".stderr")

MOST_JSON = 64 << 20
MOST = 256 << 20
"""Bytes of a JSON file, and of any other, that are read."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: it cannot be read, is no regular file, or too large. ValueError: it is no JSON, or too deep.
    """
    try:
        return json.loads(read_regular(path, MOST_JSON).decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error


def settle(folder: Path, most_log: int) -> str:
    """Remove what is no plain file from a folder in which steps write, and say what that was: one line, or nothing.

    A pipe or a device would make its reader wait for ever, and a link (a hard one too) leads where a later step of the
    check, or the check, would write.

    Args:
        most_log: bytes that a log (``.stdout``, ``.stderr``) may have.
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
            except OSError as error:  # it cannot be removed either
                found.append(f"{path.relative_to(folder)}: {error.strerror}")
    if not found:
        return ""
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"left no plain files in the check's folder ({'; '.join(found[:3])}{more}); write results as files"


def _strange(found: os.stat_result, most: int) -> str:
    """Return what a folder's entry is; nothing where it is a folder or a file to be read."""
    if stat.S_ISDIR(found.st_mode):
        return ""
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, a socket or a device"
    if found.st_nlink > 1:
        return "a second name of another file"
    return f"larger than {most >> 20} MiB" if found.st_size > most else ""
