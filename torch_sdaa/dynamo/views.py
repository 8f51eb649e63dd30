"""Results that share the memory of an input or of another result: they remain views, outside partitions."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

REASON = "its result shares the memory of an input or of another result"


def shared(graph: fx.Graph, visible: int) -> list[fx.Node]:
    """Return the operators between a result that is a view and its base, an input or a result.

    Views launch nothing on the device. An operator that is not a view ends a chain.

    Args:
        visible: number of results that the caller sees.
    """
    (given,) = graph.output_node().args
    ends = list(given)[:visible] if isinstance(given, (tuple, list)) else [given]
    found: dict[fx.Node, None] = {}
    for end in ends:
        chain, node = [], end
        while isinstance(node, fx.Node) and _is_view(node):
            chain.append(node)
            node = node.args[0]
            if node in ends:
                break
        if chain and isinstance(node, fx.Node) and (node.op == "placeholder" or node in ends):
            found.update(dict.fromkeys(chain))
    return list(found)


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return isinstance(source, fx.Node) and _is_view(source)
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is torch.ops.aten.reshape.default:
        return node.target is torch.ops.aten.reshape.default
    return any(each.alias_info is not None and not each.alias_info.is_write for each in node.target._schema.arguments)
