"""Types and constants of the tensors in scope at a node, including those outside the body of an If, Loop or Scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

    Scope: TypeAlias = "dict[str, ValueInfoProto | TensorProto]"


def scope_of(graph: GraphProto, outer: Scope | None = None) -> Scope:
    """Return the tensors in scope of a graph with inferred shapes: values of weights and constants, types of others.

    ``outer``: the scope of the graph around a body.
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
    """Yield the name of every node (in a body with the prefix of the outer node), the node and its scope."""
    from engine.onnx import subgraphs

    scope = scope_of(graph, outer)
    for i, node in enumerate(graph.node):
        name = f"{place}{node.name or f'{node.op_type}_{i}'}"
        yield name, node, scope
        for inner in subgraphs(node):
            yield from placed_nodes(inner, f"{name}/", scope)
