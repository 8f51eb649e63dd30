"""A bar for whoever waits at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], unit: str, what: str | None = None) -> Iterable[T]:
    """Show on stderr how far a loop is, and take the bar away at its end; what is no terminal stays quiet.

    Args:
        items: what is looped over; one step, or none, is not worth a bar.
        unit: what one step is, singular. what: stands before the bar.
    """
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) < 2):
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, what, unit=unit, leave=False)
    return bar


def trying_rules(items: Sequence[T]) -> Iterable[T]:
    """Show how far a search among the rewrite rules is."""
    return progress(items, "rule", "trying rules")
