"""Flags of all commands: ``--json [FILE]``, and former names of flags.

Without FILE, or with ``-``, ``--json`` writes to standard output, and all printed text goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import TextIO

STDOUT = Path("-")
"""Value of the flag for standard output."""

_reserved: ContextVar[list[TextIO] | None] = ContextVar("_reserved", default=None)
"""Standard output, if it is reserved; an empty list if not; ``None`` outside :func:`restoring_stdout`."""


def hide_aliases(parser: argparse.ArgumentParser, flag: str, *aliases: str) -> None:
    """Accept aliases of a flag that the parser has; the help lists only ``flag``."""
    for alias in aliases:
        parser._option_string_actions[alias] = parser._option_string_actions[flag]


def add_json_flag(parser: argparse.ArgumentParser, what: str = "the result") -> None:
    """Add ``--json [FILE]``; its value is a path, :data:`STDOUT` or ``None``.

    Args:
        parser: of the command.
        what: object of the verb in the help text.
    """
    text = f"write {what} as JSON to FILE or, without FILE, to standard output"
    parser.add_argument("--json", nargs="?", type=Path, const=STDOUT, metavar="FILE", help=text)


def separated(argv: Sequence[str]) -> list[str]:
    """Return the arguments with ``--json NAME`` replaced by ``--json=- NAME`` unless NAME is ``-`` or ends in .json.

    For commands that take names and in which ``--json`` was a switch, as in ``teco info --json digits``. Any file can
    be given as ``--json=FILE``.
    """
    words = list(argv)
    for place, (word, value) in enumerate(pairwise(argv)):
        if word == "--json" and value != str(STDOUT) and not value.startswith("-") and not value.endswith(".json"):
            words[place] = f"--json={STDOUT}"
    return words


def reserve_stdout(path: Path | None) -> None:
    """If the JSON goes to standard output, redirect printed text to standard error.

    Lasts until the end of the block of :func:`restoring_stdout`; has no effect outside such a block.

    Args:
        path: value of the flag.
    """
    if path == STDOUT and _reserved.get() == []:
        _reserved.set([sys.stdout])
        sys.stdout = sys.stderr


def write_stdout(text: str) -> None:
    """Write the JSON to standard output."""
    stream = (_reserved.get() or [sys.stdout])[0]
    stream = getattr(stream, "bare", stream)  # without the escapes for terminals, which are not JSON
    stream.write(_encodable(text, stream.encoding or "utf-8"))
    stream.flush()


def _encodable(text: str, encoding: str) -> str:
    """Return the JSON text with escapes for all other characters than ASCII if the encoding lacks one of them."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)
    return text


@contextmanager
def restoring_stdout() -> Iterator[None]:
    """Undo :func:`reserve_stdout` at the end of the block."""
    before, token = sys.stdout, _reserved.set([])
    try:
        yield
    finally:
        sys.stdout = before
        _reserved.reset(token)
