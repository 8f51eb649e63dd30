"""Progress bar for terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sized
from typing import TypeVar

from tecoinfer_modelzoo.text import printable

T = TypeVar("T")


def progress(items: Iterable[T], unit: str, what: str | None = None, total: int | None = None) -> Iterable[T]:
    """Show the progress of at least two items on standard error, if that is a terminal; else tqdm is not imported."""
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) < 2):
        return items
    from tqdm import tqdm

    # A bar inside another one moves the cursor: the safe streams would print these sequences as text, so the bar goes
    # past them; a terminal without cursor movements has all bars in one line.
    file = getattr(sys.stderr, "bare", sys.stderr)
    place = 0 if os.environ.get("TERM", "dumb") == "dumb" else None
    text = None if what is None else printable(what, keep="")
    bar: Iterable[T] = tqdm(items, text, total, unit=unit, file=file, position=place)
    return bar
