"""Standard output and error as a terminal may show them: names of files are data, and data may hold anything."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from engine import MOST_SHOWN, printable, shortened


class Shown:
    """A stream that writes control characters and marks that turn text around as escapes; ``bare`` is what it wraps.

    Args:
        keep: control characters that stay. brief: of a line that nobody would read, the middle is left out.
    """

    def __init__(self, bare: TextIO, keep: str, *, brief: bool = False) -> None:
        self.bare, self._keep, self._brief = bare, keep, brief

    def write(self, text: str) -> int:
        """Write a text; its line breaks stay."""
        shown = printable(text, self._keep)
        if self._brief and len(shown) > MOST_SHOWN:
            shown = "\n".join(map(shortened, shown.split("\n")))
        self.bare.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


_RAISING = ("strict", "surrogateescape", "surrogatepass")
"""Ways of a stream with what its encoding lacks of which each raises an error of some text."""


def _takes_all(stream: TextIO) -> TextIO:
    """Have a stream write an escape for what its encoding lacks.

    By itself Python's raises, at an é in ASCII or, in the locales C and C.UTF-8 too, at the half of a pair (U+D800).
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors in _RAISING:
        stream.reconfigure(errors="backslashreplace")
    return stream


@contextmanager
def only_shown() -> Iterator[None]:
    """Have both streams write only what may be shown; a bar of progress goes back to the beginning of its line."""
    before = _takes_all(sys.stdout), _takes_all(sys.stderr)
    sys.stdout, sys.stderr = Shown(before[0], "\n\t"), Shown(before[1], "\n\t\r", brief=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
