"""Random tensors of a graph, drawn by the device before the rest of it: masks of dropout are inputs of a partition."""

from __future__ import annotations

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
    _aten.rand.default,
    _aten.randn.default,
)
"""Random operators for which only the sizes of a tensor count."""


class Draw(torch.nn.Module):
    """Draws one random tensor in the sizes of the call."""

    def __init__(self, node: fx.Node, numbers: Numbers) -> None:
        super().__init__()
        self._target, self._kwargs, self._numbers = node.target, dict(node.kwargs), numbers
        self._traced = node.meta["val"]
        first = node.args[0]
        self._of_tensor = isinstance(first, fx.Node)
        self._like = first.meta["val"] if isinstance(first, fx.Node) else None
        self._rest = node.args[1:]

    def forward(self) -> Any:
        """Draw."""
        shape = self._numbers.sizes.shape(self._traced.shape)
        if self._like is None:
            return self._target(shape, *self._rest, **self._kwargs)
        like = torch.empty(shape, dtype=self._like.dtype, device=self._like.device)
        return self._target(like, *self._rest, **self._kwargs)


def hoisted(gm: fx.GraphModule, numbers: Numbers) -> int:
    """Move random tensors to the front of a graph, in their order; return how many."""
    found = [node for node in gm.graph.nodes if node.target in _BY_SHAPE]
    first = next((node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr")), None)
    for place, node in enumerate(found):
        if any(isinstance(each, fx.Node) for each in (*node.args[1:], *node.kwargs.values())):
            continue
        name = f"draw_{place}"
        gm.add_submodule(name, Draw(node, numbers))
        with gm.graph.inserting_before(first):
            drawn = gm.graph.call_module(name)
        drawn.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(drawn)
        gm.graph.erase_node(node)
        if first is node:
            first = drawn.next
    if found:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return len(found)
