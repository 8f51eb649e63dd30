"""Texts out of regular files: of what data folders hold besides, such as a pipe, a reader would wait for ever."""

from __future__ import annotations

import os
from pathlib import Path

from engine import check_regular, read_regular


def no_file(path: str | os.PathLike[str]) -> str:
    """Return what a path is that is no regular file, as a message goes on after it: ``is a folder``, for one."""
    try:
        check_regular(path)
    except IsADirectoryError:
        return "is a folder"
    except OSError:
        return "is a pipe, a socket or a device, and no file"
    return "does not exist"


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a regular file in UTF-8, with or without a byte order mark; line ends become line feeds.

    Args:
        errors: what becomes of bytes that are no UTF-8, as :meth:`bytes.decode` takes it.

    Raises:
        OSError: it cannot be read, is none, or is too large. ValueError: it is no UTF-8.
    """
    text = read_regular(path).decode("utf-8-sig", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")
