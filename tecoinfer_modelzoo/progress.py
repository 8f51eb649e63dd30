"""Progress bar for terminals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], unit: str, what: str | None = None, total: int | None = None) -> Iterable[T]:
    """Show the progress of a loop on standard error if that is a terminal; otherwise tqdm is not imported.

    Args:
        items: the iterable; fewer than two items are shown without a bar.
        unit: name of one step, singular.
        what: prefix of the bar.
        total: number of steps, if ``items`` has no length.
    """
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) < 2):
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, what, total, unit=unit)
    return bar
