"""A bar for whoever waits at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], unit: str, what: str | None = None, total: int | None = None) -> Iterable[T]:
    """Show on stderr how far a loop is.

    What is no terminal (a file, a pipe, CI) stays quiet, and tqdm is not even imported.

    Args:
        items: what is looped over; one step, or none, is not worth a bar.
        unit: what one step is, singular. what: stands before the bar.
        total: steps, where ``items`` cannot tell.
    """
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) < 2):
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, what, total, unit=unit)
    return bar
