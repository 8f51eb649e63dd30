"""Random tensors of a graph, drawn by the device in the order of the uncompiled network: dropout masks etc.

Draws that do not depend on values of tensors are made before the rest, and are inputs of a partition. Others stay in
place; from there on each draw waits for the previous one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx.node import map_arg

from torch_sdaa.dynamo.plans import Numbers

_aten = torch.ops.aten

_BY_SHAPE = (
    _aten.bernoulli.p,
    _aten.rand_like.default,
    _aten.randn_like.default,
    _aten.randint_like.default,
    _aten.randint_like.low_dtype,
    _aten.rand.default,
    _aten.randn.default,
    _aten.normal_functional.default,
    _aten.uniform.default,
    _aten.exponential.default,
)
"""Random operators that depend only on the shape of a tensor."""

_IN_ORDER = (_aten.rand.default, _aten.randn.default)
"""Random operators with a shape argument instead of a tensor."""


class Draw(torch.nn.Module):
    """Draws one random tensor with the sizes of the call."""

    def __init__(self, node: fx.Node, numbers: Numbers) -> None:
        super().__init__()
        self._target: Any = node.target
        self._args, self._kwargs, self._numbers = node.args, dict(node.kwargs), numbers
        self._traced = node.meta["val"]
        first = node.args[0] if node.args else None
        self._like = first.meta["val"] if isinstance(first, fx.Node) else None
        # Filling a new tensor was ``bernoulli_``, which follows its memory layout; ``bernoulli`` does not.
        self._fills = node.target is _aten.bernoulli.p and "empty" in str(getattr(first, "target", ""))

    def forward(self, *_: Any) -> Any:
        """Draw; the argument is the previous draw."""
        sizes = self._numbers.sizes
        if self._like is None:
            first = (sizes.shape(self._traced.shape),) if self._target in _IN_ORDER else self._args[:1]
            return self._target(*first, *self._args[1:], **self._kwargs)
        # Numbers are drawn in memory order.
        shape, strides = sizes.shape(self._like.shape), sizes.shape(self._like.stride())
        like = torch.empty_strided(shape, strides, dtype=self._like.dtype, device=self._like.device)
        if self._fills:
            return like.bernoulli_(*self._args[1:])
        return self._target(like, *self._args[1:], **self._kwargs)


class After:
    """An operator that draws depending on values of a tensor, after the previous draw."""

    why_left = "random numbers are drawn by the device, each draw after the one before it"

    def __init__(self, target: Any) -> None:
        self._target = target
        self.__name__ = self.__qualname__ = str(target).replace(".", "_")
        self.__module__ = __name__

    def __call__(self, _: Any, *args: Any, **kwargs: Any) -> Any:
        """Draw."""
        return self._target(*args, **kwargs)

    def __str__(self) -> str:
        """Return the operator's name."""
        return str(self._target)


class Saved(After):
    """A draw of a checkpointed part: also returns the generator state before it, for :class:`Again`."""

    def __call__(self, _: Any, device: torch.device, *args: Any, **kwargs: Any) -> Any:
        """Draw."""
        state = _states(device).get_rng_state(device)
        return state, self._target(*args, **kwargs)


class Again(After):
    """The same draw in the backward pass."""

    def __call__(self, _: Any, device: torch.device, state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Repeat the draw, and restore the generator."""
        states = _states(device)
        before = states.get_rng_state(device)
        states.set_rng_state(state, device)
        try:
            return self._target(*args, **kwargs)
        finally:
            states.set_rng_state(before, device)


class _Host:
    """The host's generator with the interface of a device's."""

    @staticmethod
    def get_rng_state(_: torch.device) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, _: torch.device) -> None:
        torch.set_rng_state(state)


def _states(device: torch.device) -> Any:
    return _Host if device.type == "cpu" else getattr(torch, device.type)


def hoisted(gm: fx.GraphModule, numbers: Numbers) -> int:
    """Order the random tensors of a graph; return how many are drawn before the rest."""
    found = [node for node in gm.graph.nodes if _is_random(node)]
    first: Any = next((node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr")), None)
    before: fx.Node | None = None
    count, ahead = 0, True
    for place, node in enumerate(found):
        free = _is_free(node)
        ahead = ahead and free
        count += ahead
        with gm.graph.inserting_before(first if ahead else node):
            if free:
                gm.add_submodule(f"draw_{place}", Draw(node, numbers))
                drawn = gm.graph.call_module(f"draw_{place}", (before,))
            else:
                drawn = _waiting(gm.graph, node, before)
        drawn.meta.update(node.meta)
        node.replace_all_uses_with(drawn)
        if first is node:
            first = node.next
        gm.graph.erase_node(node)
        before = drawn
    if found:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return count


def _waiting(graph: fx.Graph, node: fx.Node, before: fx.Node | None) -> fx.Node:
    """Write a draw that waits for another, in place."""
    args: Any = node.args
    if node.target is run_and_save_rng_state:
        target, given = args[0], args[1:]
        made = next(user.meta["val"] for user in node.users if user.args[1] == 1)
        return graph.call_function(Saved(target), (before, made.device, *given), node.kwargs)
    if node.target is run_with_rng_state:
        state, target, *given = args
        node.meta["val"] = made = target(*map_arg(tuple(given), lambda each: each.meta["val"]), **node.kwargs)
        return graph.call_function(Again(target), (before, made.device, state, *given), node.kwargs)
    return graph.call_function(After(node.target), (before, *args), node.kwargs)


def _is_random(node: fx.Node) -> bool:
    if node.target in (run_and_save_rng_state, run_with_rng_state):
        return True
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_free(node: fx.Node) -> bool:
    """Return whether a draw does not depend on values of tensors."""
    if node.target in (run_and_save_rng_state, run_with_rng_state):
        return False
    if not node.all_input_nodes:
        return isinstance(node.meta.get("val"), torch.Tensor)
    given = (*node.args[1:], *node.kwargs.values())
    return node.target in _BY_SHAPE and not any(isinstance(each, fx.Node) for each in given)
