"""Progress bar for terminals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], unit: str, what: str | None = None, total: int | None = None) -> Iterable[T]:
    """Show the progress of at least two items on standard error, if that is a terminal; else tqdm is not imported."""
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) < 2):
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, what, total, unit=unit)
    return bar
