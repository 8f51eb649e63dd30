"""Which module of a network runs: its path in the network, told to the extension while it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from torch_sdaa.core import C

_NONE = -1


class ModuleNames:
    """Names modules while they are called, from :meth:`start` to :meth:`stop`.

    A class that has a ``__call__`` of its own and does not call its parent's stays unnamed.

    Attributes:
        names: by number, such as ``layers.0.attention (SelfAttention)``.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._before: Callable[..., Any] | None = None

    def start(self) -> None:
        """Begin to name."""
        self._before = before = torch.nn.Module.__call__
        number, here, compiling = self._number, C.module_here, torch.compiler.is_compiling

        def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 -- it replaces this one
            if compiling():
                return before(self, *args, **kwargs)
            outer = here(number(self))
            try:
                return before(self, *args, **kwargs)
            finally:
                here(outer)

        setattr(torch.nn.Module, "__call__", __call__)  # noqa: B010 -- mypy refuses the plain assignment

    def stop(self) -> None:
        """End naming."""
        if self._before is not None:
            setattr(torch.nn.Module, "__call__", self._before)  # noqa: B010
        self._before = None

    def _number(self, module: torch.nn.Module) -> int:
        found = self._known.get(module)
        if found is not None:
            return found
        for path, part in module.named_modules():
            if part not in self._known:
                self._known[part] = len(self.names)
                kind = type(part).__name__
                self.names.append(f"{path} ({kind})" if path else kind)
        return self._known[module]
