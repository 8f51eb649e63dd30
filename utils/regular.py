"""Files that may be opened: what data folders hold besides, such as a pipe, would make a reader wait for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise where a path is there and leads to no regular file.

    Raises:
        OSError: it is a folder, a pipe, a socket or a device.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # whoever opens it says what is wrong
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no file", os.fspath(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, or is none.
    """
    check_regular(path)
    return path.read_bytes()
