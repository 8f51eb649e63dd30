"""Where a call of an operator comes from: module, line of the script, forward or backward, step.

The backward is led back to its forward by autograd's own numbers: a node gets the next one before its forward operator
runs, so that what runs next in that thread is what the node is the backward of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
"""Classes that wrap a model, and what they call it; its modules are named as without them."""

_OF_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).resolve().parents[1]}{os.sep}"


class Place:
    """Where a call comes from; see :class:`engine.OpCall`."""

    __slots__ = ("module", "phase", "source")

    def __init__(self, phase: str, module: str, source: str) -> None:
        self.phase, self.module, self.source = phase, module, source


class Places:
    """Follows modules, optimizers and the backward while it is entered.

    Attributes:
        step: how many optimizer steps have returned since it was entered.
        modules: path -> class, of every model whose forward was called. parameters: path -> shape.
    """

    def __init__(self) -> None:
        self.step = 0
        self.modules: dict[str, str] = {}
        self.parameters: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self._held: list[torch.nn.Module] = []  # so that an id stays that of one module
        self._roots: dict[str, int] = {}
        self._stack = threading.local()
        self._made: dict[int, Place] = {}  # autograd's number -> the forward call
        self._optimizer = ""
        self._thread = threading.get_ident()
        self._forwards = 0  # calls of this thread outside a backward
        self._hooks: list[Any] = []

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.get_ident()
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ends),
        ]

    def stop(self) -> None:
        """End it."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._held = [], []
        self._made.clear()

    def of_call(self) -> Place:
        """Return where the call at hand comes from."""
        node = torch._C._current_autograd_node()
        if node is not None and not self._modules():
            return self._of_backward(node)
        source = self._source() or self._source_of_backward(node)
        if self._optimizer:
            return Place("optimizer", self._optimizer, source)
        place = Place("backward" if node is not None else "forward", self._module(), source)
        self._note(torch._C._autograd._get_sequence_nr() - 1, place, node is not None)
        return place

    def _note(self, number: int, place: Place, within: bool) -> None:
        """Keep the place of a forward call; one that a backward repeats (a checkpoint) has its thread's numbers."""
        if not within or threading.get_ident() == self._thread:
            self._forwards += not within
            self._made.setdefault(number, place)
            return
        if getattr(self._stack, "after", None) != self._forwards:  # the backward of another forward
            self._stack.made, self._stack.after = {}, self._forwards
            self._stack.outer = torch._C._current_graph_task_id()
        self._stack.made.setdefault(number, place)

    def _forward_of(self, node: Any) -> Place | None:
        """Return the forward call that a node is the backward of."""
        repeated = getattr(self._stack, "after", None) == self._forwards
        if repeated and torch._C._current_graph_task_id() != self._stack.outer:  # a backward within this one
            made: dict[int, Place] = self._stack.made
            return made.get(node._sequence_nr())
        return self._made.get(node._sequence_nr())

    def _source_of_backward(self, node: Any) -> str:
        """Return the line of what the backward at hand belongs to: its forward's, else that which began it."""
        made = None if node is None else self._forward_of(node)
        return made.source if made is not None and made.source else self._source(sys._current_frames()[self._thread])

    def _of_backward(self, node: Any) -> Place:
        made = self._forward_of(node)
        if made is not None:
            return Place("backward", made.module, made.source or self._source_of_backward(None))
        variable = getattr(node, "variable", None)  # of what adds up the gradients of a parameter
        return Place("backward", self._owners.get(id(variable), ""), self._source() or self._source_of_backward(None))

    def _modules(self) -> list[str]:
        found: list[str] | None = getattr(self._stack, "names", None)
        if found is None:
            found = self._stack.names = []
        return found

    def _module(self) -> str:
        names = self._modules()
        return names[-1] if names else ""

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if id(module) not in self._names:
            self._name_all(module)
        self._modules().append(self._names[id(module)])

    def _leave(self, module: torch.nn.Module, *_: Any) -> None:
        names = self._modules()
        if names:
            names.pop()

    def _name_all(self, root: torch.nn.Module) -> None:
        """Give a model and what is in it their names."""
        self._held.append(root)
        inner: Any = root
        while hasattr(inner, attribute := _WRAPPERS.get(type(inner).__name__, "?")):
            inner = getattr(inner, attribute)
        kind = type(inner).__name__
        within = self._module()  # made on the fly, inside another
        count = self._roots[kind] = self._roots.get(kind, 0) + 1
        base = f"{within}:{kind}" if within else kind if count == 1 else f"{kind}#{count}"
        self._names[id(root)] = base
        for name, module in inner.named_modules():
            path = f"{base}.{name}" if name else base
            if self._names.setdefault(id(module), path) == path and not within:
                self.modules[path] = type(module).__name__
        for name, parameter in inner.named_parameters():
            path = f"{base}.{name}"
            self._owners.setdefault(id(parameter), path.rpartition(".")[0])
            if not within:
                self.parameters[path] = list(parameter.shape)

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizer = type(optimizer).__name__

    def _step_ends(self, *_: Any) -> None:
        self._optimizer = ""
        self.step += 1

    def _source(self, frame: FrameType | None = None) -> str:
        frame = frame or sys._getframe(1)
        while frame is not None and _is_inner(frame.f_code):
            frame = frame.f_back
        return "" if frame is None else f"{_shown(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


_known: dict[CodeType, bool] = {}


def _is_inner(code: CodeType) -> bool:
    """Say whether a frame is of PyTorch or of this package, or between them and the script."""
    found = _known.get(code)
    if found is None:
        found = _known[code] = code.co_filename.startswith(
            (_OF_TORCH, _OURS, contextlib.__file__, "<frozen", "<eval_with_key")
        )
    return found


def _shown(name: str) -> str:
    path = Path(name)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else name
