"""Random tensors of a graph, drawn by the device in the order of the uncompiled network: masks of dropout and the like.

Those for which no number of another tensor counts are drawn before the rest, and are inputs of a partition. What draws
by numbers of a tensor stays where it is; from there on each draw waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

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
"""Random operators for which only the sizes of a tensor count."""

_IN_ORDER = (_aten.rand.default, _aten.randn.default)
"""Those whose sizes are given, not a tensor."""


class Draw(torch.nn.Module):
    """Draws one random tensor in the sizes of the call."""

    def __init__(self, node: fx.Node, numbers: Numbers) -> None:
        super().__init__()
        self._target: Callable[..., Any] = node.target  # type: ignore[assignment]
        self._args, self._kwargs, self._numbers = node.args, dict(node.kwargs), numbers
        self._traced = node.meta["val"]
        first = node.args[0] if node.args else None
        self._like = first.meta["val"] if isinstance(first, fx.Node) else None
        # What fills a new tensor was ``bernoulli_``, which keeps to the order of its memory; ``bernoulli`` does not.
        self._fills = node.target is _aten.bernoulli.p and "empty" in str(getattr(first, "target", ""))

    def forward(self, *_: Any) -> Any:
        """Draw; what is given was drawn before."""
        sizes = self._numbers.sizes
        if self._like is None:
            first = (sizes.shape(self._traced.shape),) if self._target in _IN_ORDER else self._args[:1]
            return self._target(*first, *self._args[1:], **self._kwargs)
        # Numbers are drawn in the order of the memory.
        shape, strides = sizes.shape(self._like.shape), sizes.shape(self._like.stride())
        like = torch.empty_strided(shape, strides, dtype=self._like.dtype, device=self._like.device)
        if self._fills:
            return like.bernoulli_(*self._args[1:])
        return self._target(like, *self._args[1:], **self._kwargs)


class After:
    """An operator that draws by the numbers of a tensor, and waits for what was drawn before it."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.__name__ = self.__qualname__ = str(target).replace(".", "_")
        self.__module__ = __name__

    def __call__(self, _: Any, *args: Any, **kwargs: Any) -> Any:
        """Draw."""
        return self._target(*args, **kwargs)

    def __str__(self) -> str:
        """Return the operator's own name."""
        return str(self._target)


def hoisted(gm: fx.GraphModule, numbers: Numbers) -> int:
    """Put the random tensors of a graph in their order; return how many are drawn before the rest."""
    found = [node for node in gm.graph.nodes if _is_random(node)]
    first = next((node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr")), None)
    before: tuple[fx.Node, ...] = ()
    count, ahead = 0, True
    for place, node in enumerate(found):
        free = _is_free(node)
        ahead = ahead and free
        if free:
            gm.add_submodule(f"draw_{place}", Draw(node, numbers))
            with gm.graph.inserting_before(first if ahead else node):
                drawn = gm.graph.call_module(f"draw_{place}", before)
            count += ahead
        else:
            if not before:
                before = (node,)
                continue
            with gm.graph.inserting_before(node):
                drawn = gm.graph.call_function(After(node.target), (*before, *node.args), node.kwargs)
        drawn.meta.update(node.meta)
        node.replace_all_uses_with(drawn)
        if first is node:
            first = node.next
        gm.graph.erase_node(node)
        before = (drawn,)
    if found:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return count


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_free(node: fx.Node) -> bool:
    """Say whether no number of another tensor counts for what is drawn."""
    if not node.all_input_nodes:
        return isinstance(node.meta.get("val"), torch.Tensor)
    given = (*node.args[1:], *node.kwargs.values())
    return node.target in _BY_SHAPE and not any(isinstance(each, fx.Node) for each in given)
