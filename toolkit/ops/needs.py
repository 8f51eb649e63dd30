"""What a model needs: every operator with the dtypes, attributes and shapes it is used with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

UNKNOWN = "?"


@dataclass(slots=True)
class Need:
    """One operator in one form.

    Attributes:
        op: its name, ``domain::name`` outside ONNX's own domain.
        version: of the operator set.
        reads, writes: dtypes; ``?`` where they are not known, "" where an optional one is left out.
        attributes: as text, tensors and graphs by their kind.
        shapes: of what the nodes write, each once; ``?`` for sizes that are not known beforehand.
        nodes: names of the nodes, those in the bodies of If, Loop and Scan behind the node that holds them.
        first: one of them (``None`` for a torch operator). inner: whether that one lies in a body.
    """

    op: str
    version: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attributes: dict[str, str]
    shapes: list[str]
    first: NodeProto | None
    inner: bool
    nodes: list[str] = field(default_factory=list)

    @property
    def dtypes(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for name in (*self.reads, *self.writes) if name))


def find_needs(model: ModelProto) -> list[Need]:
    """Return what a model needs, in the order of the graph.

    Args:
        model: with inferred shapes and unique node names.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    found: dict[tuple[object, ...], Need] = {}
    for place, node, types in _nodes(model.graph, "", {}):
        op = op_name(node)
        reads = tuple(_dtype(name, types) if name else "" for name in node.input)
        writes = tuple(_dtype(name, types) if name else "" for name in node.output)
        attributes = {a.name: _text(a) for a in node.attribute}
        version = versions.get(node.domain, versions.get("" if node.domain == "ai.onnx" else node.domain, 0))
        key = (op, reads, writes, *sorted(attributes.items()))
        need = found.setdefault(key, Need(op, version, reads, writes, attributes, [], node, "/" in place.strip("/")))
        need.nodes.append(place)
        shape = ", ".join(_shape(name, types) for name in node.output if name)
        if shape not in need.shapes:
            need.shapes.append(shape)
    return list(found.values())


def op_name(node: NodeProto) -> str:
    """Return ``Conv``, or ``domain::name`` for an operator outside ONNX's own domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _nodes(
    graph: GraphProto, place: str, outer: dict[str, ValueInfoProto | int]
) -> Iterator[tuple[str, NodeProto, dict[str, ValueInfoProto | int]]]:
    from engine.onnx_graph import subgraphs

    types: dict[str, ValueInfoProto | int] = {**outer, **{t.name: t.data_type for t in graph.initializer}}
    types |= {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    for i, node in enumerate(graph.node):
        name = f"{place}{node.name or f'{node.op_type}_{i}'}"
        yield name, node, types
        for inner in subgraphs(node):
            yield from _nodes(inner, f"{name}/", types)


def _dtype(name: str, types: dict[str, ValueInfoProto | int]) -> str:
    from onnx import TensorProto

    found = types.get(name, 0)
    if not isinstance(found, int):
        form = found.type.WhichOneof("value")
        if form not in (None, "tensor_type"):
            return str(form).removesuffix("_type")
        found = found.type.tensor_type.elem_type
    if not found:
        return UNKNOWN
    word = str(TensorProto.DataType.Name(found)).lower()
    return {"float": "float32", "double": "float64"}.get(word, word)


def _shape(name: str, types: dict[str, ValueInfoProto | int]) -> str:
    from engine.onnx_graph import dims

    found = types.get(name)
    if found is None or isinstance(found, int) or not found.type.tensor_type.HasField("shape"):
        return UNKNOWN
    return "x".join(str(d) if d is not None else UNKNOWN for d in dims(found)) or "scalar"


def _text(attribute: AttributeProto) -> str:
    from onnx import AttributeProto, helper

    kind = AttributeProto.AttributeType.Name(attribute.type)
    if kind in ("TENSOR", "GRAPH", "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "UNDEFINED"):
        return str(kind).lower()
    value = helper.get_attribute_value(attribute)
    return str(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)
