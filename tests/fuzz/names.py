"""Unusual file names, and paths that are not regular files."""

from __future__ import annotations

import os
import random
from pathlib import Path

NAMES = (
    "line\nbreak",
    "line\neval_metric 9.9",
    "esc\x1b[31mred\x1b]0;title\x07",
    "rtl\u202egnp",
    "tab\tand  blanks ",
    "-rf",
    "--json=x",
    "quote'\"`$(id)",
    "100%d{}%s",
    "\u00e9\u4e2d\U0001f600",
    "a" * 250,
    ".hidden",
    "surrogate\udcff",
    "zero\u200bwidth\u2028sep",
)
"""Stems of file names; one forges a line of the output; the surrogate is an invalid UTF-8 byte."""


def odd_name(rng: random.Random, ending: str) -> str:
    """Return an odd file name with this ending, at most 255 bytes."""
    stem = rng.choice(NAMES)
    return f"{stem[: 250 - len(ending)]}{ending}"


NO_FILES = ("pipe", "device", "folder", "dangling link", "link to itself", "socket", "endless device")


def not_a_file_reason(rng: random.Random, path: Path) -> str:
    """Create something other than a regular file, and return its description."""
    import socket

    what = rng.choice(NO_FILES)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/tty")
    elif what == "endless device":
        path.symlink_to("/dev/zero")
    elif what == "folder":
        path.mkdir()
    elif what == "dangling link":
        path.symlink_to("nowhere")
    elif what == "link to itself":
        path.symlink_to(path.name)
    else:
        parent = os.open(path.parent, os.O_PATH)  # a socket's path may have 108 bytes only
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(f"/proc/self/fd/{parent}/{path.name}")
        os.close(parent)
    return f"{path.name} is a {what}"
