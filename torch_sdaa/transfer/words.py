"""CUDA's device names and their replacements, counts, and restoration of changed attributes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

COUNTS: Counter[str] = Counter()
"""Number of redirections in Python, by name; those in C++ are counted there."""

REFUSED: Counter[str] = Counter()
"""Number of refusals, by name."""

_GONE = object()


class NotOnSdaaError(RuntimeError):
    """A feature of CUDA that sdaa lacks; the message is one line with a replacement."""


def refuse(name: str, why: str) -> NotOnSdaaError:
    """Return the error for a name that cannot be redirected, and count it."""
    REFUSED[name] += 1
    return NotOnSdaaError(f"transfer_to_sdaa cannot redirect {name} to sdaa: {why}")


def redirected(value: Any) -> Any:
    """Return the replacement of a CUDA device or its name; other values unchanged."""
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return f"sdaa{value[4:]}"
    if isinstance(value, torch.device) and str(value).startswith("cuda"):
        return torch.device(str(value))  # created before the redirection
    return value


def from_outside(depth: int = 1) -> bool:
    """Return whether the caller's caller is neither in torch nor in this package."""
    package = str(sys._getframe(depth + 1).f_globals.get("__name__")).partition(".")[0]
    return package not in ("torch", "torch_sdaa")


class Changes:
    """Attributes that were changed, in order, for their restoration."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class, to be restored later."""
        old = vars(owner).get(name, _GONE)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if old is _GONE else setattr(owner, name, old))

    def later(self, undo: Callable[[], object]) -> None:
        """Register a function that restores a change."""
        self._undo.append(undo)

    def take_back(self) -> None:
        """Restore all changes, the last first."""
        while self._undo:
            self._undo.pop()()
