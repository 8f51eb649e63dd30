"""Names of the running modules, by path in the network, passed to the extension during their calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from torch_sdaa.loading.core import C


@dataclass(slots=True)
class Called:
    """Calls made by one line.

    Attributes:
        count: number of calls. beside: longest series with the same first operand. modules: indices of the called
            modules.
        inside: indices of these and of all their submodules.
    """

    count: int = 0
    beside: int = 0
    last: int = 0
    row: int = 0
    modules: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)


def _left_out_of_compiling(function: Callable[..., Any], inside: bool) -> None:
    """Exclude a function from torch.compile, like PyTorch's own functions.

    Args:
        function: written in Python. inside: also exclude the functions that it calls.
    """
    frames = torch._C._dynamo.eval_frame
    action = frames._FrameAction
    within = action.SKIP if inside else action.DEFAULT
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, within))


class ModuleNames:
    """Names modules during their calls, from :meth:`start` to :meth:`stop`.

    Classes that override ``__call__`` without calling the parent's are not named.

    Attributes:
        names: by index, such as ``layers.0.attention (SelfAttention)``; unique.
        called: modules called, by file and line of the caller.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.called: dict[tuple[str, int], Called] = {}
        self._taken: set[str] = set()
        self._known: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._before: Callable[..., Any] | None = None

    def start(self) -> None:
        """Start naming."""
        self._before = before = torch.nn.Module.__call__
        number, here, compiling, noted = self._number, C.module_here, torch.compiler.is_compiling, self._noted

        def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 -- replaces this method
            if compiling():
                return before(self, *args, **kwargs)
            own = number(self)
            noted(sys._getframe(1), self, own, args)
            outer = here(own)
            try:
                return before(self, *args, **kwargs)
            finally:
                here(outer)

        _left_out_of_compiling(__call__, inside=False)
        for helper in (ModuleNames._number, ModuleNames._noted):
            _left_out_of_compiling(helper, inside=True)
        setattr(torch.nn.Module, "__call__", __call__)  # noqa: B010 -- mypy refuses the plain assignment

    def stop(self) -> None:
        """Stop naming."""
        if self._before is not None:
            setattr(torch.nn.Module, "__call__", self._before)  # noqa: B010
        self._before = None

    def _noted(self, frame: Any, module: torch.nn.Module, number: int, args: tuple[Any, ...]) -> None:
        one = self.called.setdefault((frame.f_code.co_filename, frame.f_lineno), Called())
        first = id(args[0]) if args else 0
        one.count += 1
        one.row = one.row + 1 if first == one.last else 1
        one.beside = max(one.beside, one.row)
        one.last = first
        if number not in one.modules:
            one.modules.add(number)
            one.inside |= {self._known[part] for part in module.modules() if part in self._known}

    def _number(self, module: torch.nn.Module) -> int:
        found = self._known.get(module)
        if found is not None:
            return found
        root = self._free(type(module).__name__)
        for path, part in module.named_modules():
            if part not in self._known:
                self._known[part] = len(self.names)
                name = f"{path} ({type(part).__name__})" if path else root
                self.names.append(f"{name} of {root}" if path and name in self._taken else name)
                self._taken.add(self.names[-1])
        return self._known[module]

    def _free(self, kind: str) -> str:
        """Return an unused name for a class."""
        name, n = kind, 1
        while name in self._taken:
            n += 1
            name = f"{kind} #{n}"
        return name
