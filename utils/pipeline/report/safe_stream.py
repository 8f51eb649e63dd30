"""Standard output and error without control characters, which names of files and samples may contain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tecoinfer_modelzoo.text import MOST_SHOWN, printable, shortened


class SafeStream:
    """A stream that escapes control characters and marks that reverse the direction of text.

    Characters missing in the stream's encoding are escaped too, unless the stream replaces them itself: Python raises
    an error for é in ASCII, and for a single surrogate (U+D800) also in the locales C and C.UTF-8.

    Args:
        bare: the wrapped stream. keep: control characters to leave unchanged. brief: shorten long lines in the middle.
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
"""Error handlers of a stream that raise for some characters missing in its encoding."""


@contextmanager
def safe_streams() -> Iterator[None]:
    """Replace ``sys.stdout`` and ``sys.stderr`` by safe streams, once; the latter keeps carriage returns (progress
    bars).
    """
    before = sys.stdout, sys.stderr
    if not isinstance(sys.stdout, SafeStream):
        sys.stdout = SafeStream(sys.stdout, "\n\t")
    if not isinstance(sys.stderr, SafeStream):
        sys.stderr = SafeStream(sys.stderr, "\n\t\r", brief=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
