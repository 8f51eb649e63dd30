"""Helper functions for training scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch_sdaa.dump.dumper import dumper
from torch_sdaa.dump.module_hooks import watch_modules
from torch_sdaa.dump.twice import first_difference

__all__ = ["PREFIX", "dumper", "first_difference", "strip_module_prefix", "watch_modules"]

_T = TypeVar("_T")

PREFIX = "module."
"""Prefix of parameter names under ``DistributedDataParallel`` and ``DataParallel``."""


def strip_module_prefix(state: Mapping[str, _T]) -> dict[str, _T]:
    """Return a state dict without the prefix ``module.`` of a parallel wrapper.

    The values are the same objects; names without the prefix are unchanged.

    Raises:
        TypeError: the argument is not a dict of names.
        ValueError: it is a checkpoint with nested weights, or two names would become equal.
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise TypeError(
            f"a state dict must be a dict from names to tensors, got {type(state).__name__}: see model.state_dict()"
        )
    inner = [name for name in ("state_dict", "model", "model_state_dict") if isinstance(state.get(name), Mapping)]
    if inner:
        raise ValueError(f"this checkpoint has its weights under {inner[0]!r}: pass checkpoint[{inner[0]!r}]")
    bare = {name.removeprefix(PREFIX): value for name, value in state.items()}
    if len(bare) < len(state):
        twice = next(name for name in state if name.startswith(PREFIX) and name.removeprefix(PREFIX) in state)
        raise ValueError(f"this state dict has both {twice!r} and {twice.removeprefix(PREFIX)!r}: remove one of them")
    return bare
