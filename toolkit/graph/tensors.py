"""Types and shapes of node outputs, found by shape inference, and the tensors in scope at a node, also in bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from engine import Dim

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

    Scope: TypeAlias = "dict[str, ValueInfoProto | TensorProto]"

NUMBERS = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13))
"""``TensorProto.DataType`` values of numeric numpy dtypes: not strings, complex, bfloat16 or smaller types."""

_BYTES = {2: 1, 3: 1, 9: 1, 4: 2, 5: 2, 10: 2, 7: 8, 11: 8, 13: 8}  # bytes of an element by type, if not 4


class Tensors:
    """Outputs of the nodes of the main graph.

    Attributes:
        kinds: tensor -> ONNX element type (0: unknown).
        skipped: tensor that is not an array of numbers -> its type, such as ``sequence``.
        dims: tensor of known rank -> dimensions; includes graph inputs.
    """

    def __init__(self, model: ModelProto) -> None:
        from engine.onnx import dims, infer_shapes

        graph = infer_shapes(model).graph
        written = _written(graph)
        self.skipped = {name: what for name, info in written.items() if (what := _no_numbers(info))}
        self.kinds = {name: _element(info) for name, info in written.items() if name not in self.skipped}
        self.dims: dict[str, list[Dim]] = {info.name: dims(info) for info in graph.input}
        self.dims |= {name: dims(info) for name, info in written.items() if info is not None and _has_shape(info)}

    def sizes(self, known: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes of every tensor of known shape; ``known`` has the sizes of symbols."""
        shapes = {
            name: [d if isinstance(d, int) else known.get(d or "", 1) for d in self.dims[name]]
            for name in self.kinds
            if name in self.dims
        }
        return {name: prod(shape) * _BYTES.get(self.kinds[name], 4) for name, shape in shapes.items()}


def _written(graph: GraphProto) -> dict[str, ValueInfoProto | None]:
    """Return the outputs of nodes, in order, with their inferred types."""
    infos = {info.name: info for info in (*graph.value_info, *graph.output)}
    return {name: infos.get(name) for node in graph.node for name in node.output if name}


def _no_numbers(info: ValueInfoProto | None) -> str:
    """Return the type of a value that is not an array of numbers, else ""."""
    from onnx import TensorProto

    form = info.type.WhichOneof("value") if info is not None else None
    if form not in (None, "tensor_type"):
        return str(form).removesuffix("_type")
    element = _element(info)
    return TensorProto.DataType.Name(element).lower() if element and element not in NUMBERS else ""


def _element(info: ValueInfoProto | None) -> int:
    return int(info.type.tensor_type.elem_type) if info is not None else 0


def _has_shape(info: ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type" and bool(info.type.tensor_type.HasField("shape"))


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
