"""Origin of a call of an operator: module, line of the script, phase, step.

A backward node is mapped to its forward by autograd's sequence numbers: a node gets the next number before its forward
operator runs, so that the next call of that thread is the node's forward.
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
"""Wrapper classes of models, and the attribute with the model; modules are named without the wrapper."""

_OF_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).resolve().parents[1]}{os.sep}"


class Place:
    """Origin of a call; see :class:`engine.OpCall`."""

    __slots__ = ("module", "phase", "source")

    def __init__(self, phase: str, module: str, source: str) -> None:
        self.phase, self.module, self.source = phase, module, source


class Places:
    """Tracks modules, optimizers and the backward between ``start`` and ``stop``.

    Attributes:
        step: number of optimizer steps returned since the start.
        modules: path -> class, of every model whose forward was called. parameters: path -> shape.
    """

    def __init__(self) -> None:
        self.step = 0
        self.modules: dict[str, str] = {}
        self.parameters: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self._held: list[torch.nn.Module] = []  # keeps ids unique
        self._roots: dict[str, int] = {}
        self._stack = threading.local()
        self._made: dict[int, Place] = {}  # autograd's sequence number -> the forward call
        self._optimizer = ""
        self._thread = threading.get_ident()
        self._forwards = 0  # calls of this thread outside a backward
        self._hooks: list[Any] = []

    def start(self) -> None:
        """Start tracking."""
        self._thread = threading.get_ident()
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ends),
        ]

    def stop(self) -> None:
        """Stop tracking."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._held = [], []
        self._made.clear()

    def of_call(self) -> Place:
        """Return the origin of the current call."""
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
        """Record the origin of a forward call; calls repeated in a backward (checkpoints) have numbers of its
        thread.
        """
        if not within or threading.get_ident() == self._thread:
            self._forwards += not within
            self._made.setdefault(number, place)
            return
        if getattr(self._stack, "after", None) != self._forwards:  # the backward of another forward
            self._stack.made, self._stack.after = {}, self._forwards
            self._stack.outer = torch._C._current_graph_task_id()
        self._stack.made.setdefault(number, place)

    def _forward_of(self, node: Any) -> Place | None:
        """Return the forward call of a backward node."""
        repeated = getattr(self._stack, "after", None) == self._forwards
        if repeated and torch._C._current_graph_task_id() != self._stack.outer:  # a backward within this one
            made: dict[int, Place] = self._stack.made
            return made.get(node._sequence_nr())
        return self._made.get(node._sequence_nr())

    def _source_of_backward(self, node: Any) -> str:
        """Return the line of the forward of the current backward, else the line that started the backward."""
        made = None if node is None else self._forward_of(node)
        return made.source if made is not None and made.source else self._source(sys._current_frames()[self._thread])

    def _of_backward(self, node: Any) -> Place:
        made = self._forward_of(node)
        if made is not None:
            return Place("backward", made.module, made.source or self._source_of_backward(None))
        variable = getattr(node, "variable", None)  # of the node that accumulates a parameter's gradient
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
        """Name a model and its modules."""
        self._held.append(root)
        inner: Any = root
        while hasattr(inner, attribute := _WRAPPERS.get(type(inner).__name__, "?")):
            inner = getattr(inner, attribute)
        kind = type(inner).__name__
        within = self._module()  # created during the forward of another
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
    """Return whether a frame belongs to PyTorch, this package, or code between them and the script."""
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
