"""Ends of the steps of a training, with one or several optimizers."""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

LONGEST = 8
"""Maximum optimizer steps per round; more are phases of a training, one optimizer after the other."""


class Steps:
    """Optimizer steps, recorded as they return."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._found: list[tuple[int, int]] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._found)

    def add(self, optimizer: Any, at: int) -> None:
        """Record that an optimizer's step returned, ``at`` nanoseconds."""
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._next
            self._next += 1
        self._found.append((self._numbers[optimizer], at))

    def rounds(self) -> list[int]:
        """Return the end of each training step, nanoseconds; a round if optimizers take turns."""
        every = [at for _, at in self._found]
        kinds = len({number for number, _ in self._found})
        ended: list[int] = []
        seen: Counter[int] = Counter()
        longest = 0
        for number, at in self._found:
            seen[number] += 1
            longest = max(longest, seen.total())
            if len(seen) == kinds:
                ended.append(at)
                seen.clear()
        return ended if len(ended) > 1 and longest <= LONGEST else every
