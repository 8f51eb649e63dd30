"""Small helpers for training scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch_sdaa.dump.dumper import dumper
from torch_sdaa.dump.module_hooks import watch_modules
from torch_sdaa.dump.twice import first_difference

__all__ = ["PREFIX", "dumper", "first_difference", "strip_module_prefix", "watch_modules"]

_T = TypeVar("_T")

PREFIX = "module."
"""What ``DistributedDataParallel`` and ``DataParallel`` put before the names of a module's parameters."""


def strip_module_prefix(state: Mapping[str, _T]) -> dict[str, _T]:
    """Return a state dict whose names have lost the ``module.`` that a parallel wrapper put before them.

    The values are the same objects; names without the prefix stay as they are.

    Raises:
        TypeError: it is no dict of names.
        ValueError: it is a checkpoint that has its weights under a name, or two names would become one.
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise TypeError(
            f"a state dict is a dict from names to tensors, not {type(state).__name__}: see model.state_dict()"
        )
    inner = [name for name in ("state_dict", "model", "model_state_dict") if isinstance(state.get(name), Mapping)]
    if inner:
        raise ValueError(f"this checkpoint has its weights under {inner[0]!r}: give checkpoint[{inner[0]!r}]")
    bare = {name.removeprefix(PREFIX): value for name, value in state.items()}
    if len(bare) < len(state):
        twice = next(name for name in state if name.startswith(PREFIX) and name.removeprefix(PREFIX) in state)
        raise ValueError(f"this state dict has both {twice!r} and {twice.removeprefix(PREFIX)!r}: remove one of them")
    return bare
