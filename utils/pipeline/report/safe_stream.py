"""Standard output and error as a terminal may show them: names of files are data, and data may hold anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tecoinfer_modelzoo.text import MOST_SHOWN, printable, shortened


class Shown:
    """A stream that writes control characters and marks that turn text around as escapes; ``bare`` is what it wraps.

    What the stream's encoding lacks is written as an escape too, unless the stream already replaces it by itself:
    Python's raises, at an é in ASCII or, in the locales C and C.UTF-8 too, at the half of a pair (U+D800).

    Args:
        keep: control characters that stay. brief: of a long line, the middle is left out.
    """

    def __init__(self, bare: TextIO, keep: str, *, brief: bool = False) -> None:
        self.bare, self._keep, self._brief = bare, keep, brief
        raises = getattr(bare, "errors", None) in _RAISING
        self._encoding: str = bare.encoding if raises and bare.encoding else ""

    def write(self, text: str) -> int:
        """Write a text; its line breaks stay."""
        shown = printable(text, self._keep)
        if self._brief and len(shown) > MOST_SHOWN:
            shown = "\n".join(map(shortened, shown.split("\n")))
        if self._encoding and not shown.isascii():
            shown = shown.encode(self._encoding, "backslashreplace").decode(self._encoding)
        self.bare.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


_RAISING = ("strict", "surrogateescape", "surrogatepass")
"""Error handlers of a stream each of which raises an error for some text that its encoding lacks."""


@contextmanager
def only_shown() -> Iterator[None]:
    """Have both streams write only what may be shown; a bar of progress goes back to the beginning of its line.

    Inside another such block it changes nothing.
    """
    before = sys.stdout, sys.stderr
    if not isinstance(sys.stdout, Shown):
        sys.stdout = Shown(sys.stdout, "\n\t")
    if not isinstance(sys.stderr, Shown):
        sys.stderr = Shown(sys.stderr, "\n\t\r", brief=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
