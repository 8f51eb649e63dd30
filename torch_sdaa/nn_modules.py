"""What ``torch.nn`` does wrong when a module moves to a device that cannot share a tensor with the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy


def mend() -> None:
    """Keep tied weights tied, and lazy modules lazy."""
    # A parameter is replaced by a new one where it cannot change its device in place: two names of one parameter would part.
    torch.__future__.set_swap_module_params_on_conversion(True)
    LazyModuleMixin._apply = _apply  # type: ignore[method-assign]


def _apply(self: Any, fn: Callable[..., Any], recurse: bool = True) -> Any:
    """Move a lazy module: its uninitialised parameters become uninitialised ones of the new device."""
    lazy = [
        (held, name, type(value))
        for held in (self._parameters, self._buffers)
        for name, value in held.items()
        if is_lazy(value)
    ]
    super(LazyModuleMixin, self)._apply(fn, recurse)
    for held, name, kind in lazy:
        value = held[name]
        if not is_lazy(value):
            held[name] = kind(requires_grad=value.requires_grad, device=value.device, dtype=value.dtype)
    return self
