"""What is known of the tensors around a node: of its graph, and in the body of an If, Loop or Scan of those outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

    Scope: TypeAlias = "dict[str, ValueInfoProto | TensorProto]"


def scope_of(graph: GraphProto, outer: Scope | None = None) -> Scope:
    """Return what is known of a graph's tensors: weights and constants themselves, of all others the type.

    Args:
        graph: with inferred shapes. outer: the scope of the graph around a body.
    """
    from onnx import TensorProto

    scope: Scope = {**(outer or {})}
    scope |= {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    scope |= {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensor = TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                scope[tensor.name] = tensor
    return scope


def placed_nodes(
    graph: GraphProto, place: str = "", outer: Scope | None = None
) -> Iterator[tuple[str, NodeProto, Scope]]:
    """Yield every node, its name (in a body behind that of the node which holds it), and what is known around it."""
    from engine.onnx import subgraphs

    scope = scope_of(graph, outer)
    for i, node in enumerate(graph.node):
        name = f"{place}{node.name or f'{node.op_type}_{i}'}"
        yield name, node, scope
        for inner in subgraphs(node):
            yield from placed_nodes(inner, f"{name}/", scope)
