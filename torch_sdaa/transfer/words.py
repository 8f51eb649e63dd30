"""Names of CUDA and what stands for them, the counts of what was redirected, and how each change is taken back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

COUNTS: Counter[str] = Counter()
"""How often Python functions were redirected, by name; those of C are counted where they are."""

REFUSED: Counter[str] = Counter()
"""How often something was refused, by name."""

_GONE = object()


class NotOnSdaaError(RuntimeError):
    """Something of CUDA that sdaa has not; the message is one line that says what to do instead."""


def refuse(name: str, why: str) -> NotOnSdaaError:
    """Return the error for a name of CUDA that cannot be redirected, and count it."""
    REFUSED[name] += 1
    return NotOnSdaaError(f"transfer_to_sdaa cannot redirect {name} to sdaa: {why}")


def redirected(value: Any) -> Any:
    """Return what stands for a device's name or a device of CUDA; anything else as it is."""
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return f"sdaa{value[4:]}"
    if isinstance(value, torch.device) and str(value).startswith("cuda"):
        return torch.device(str(value))  # made before the redirection began
    return value


def from_outside(depth: int = 1) -> bool:
    """Return whether the caller's caller belongs neither to torch nor to this package."""
    package = str(sys._getframe(depth + 1).f_globals.get("__name__")).partition(".")[0]
    return package not in ("torch", "torch_sdaa")


class Changes:
    """Attributes that were set, in order, so that they can be set back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class, to be set back later."""
        old = vars(owner).get(name, _GONE)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if old is _GONE else setattr(owner, name, old))

    def later(self, undo: Callable[[], object]) -> None:
        """Remember what takes a change back."""
        self._undo.append(undo)

    def take_back(self) -> None:
        """Set everything back, the last first."""
        while self._undo:
            self._undo.pop()()
