"""Operators of a model with their dtypes, attributes and shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.graph.tensors import placed_nodes

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto

    from toolkit.graph.tensors import Scope

UNKNOWN = "?"
_ODD = ("sequence_type", "optional_type", "map_type", "sparse_tensor_type")


@dataclass(slots=True)
class Need:
    """One operator with one combination of dtypes and attributes."""

    op: str  # name, ``domain::name`` outside the ONNX domain
    version: int  # of the operator set
    reads: tuple[str, ...]  # dtypes; ``?`` if unknown, "" for an omitted optional input
    writes: tuple[str, ...]  # dtypes; ``?`` if unknown, "" for an omitted optional input
    attributes: dict[str, str]  # as text; tensors and graphs by their type
    shapes: list[str]  # distinct output shapes; ``?`` for unknown sizes
    first: NodeProto | None  # one of the nodes (``None`` for a torch operator)
    scope: Scope = field(default_factory=dict)  # tensors in scope of it
    end: str = ""  # name of an input or output of the model that it uses and that is not a tensor, or ""
    nodes: list[str] = field(default_factory=list)  # names; in bodies with the prefix of the outer node

    def add(self, name: str, shape: str) -> None:
        """Add a node by its name and output shapes."""
        self.nodes.append(name)
        if shape not in self.shapes:
            self.shapes.append(shape)

    @property
    def form(self) -> tuple[object, ...]:
        """Key of all nodes with the same need."""
        return (self.op, self.reads, self.writes, self.end, *sorted(self.attributes.items()))

    @property
    def dtypes(self) -> list[str]:
        """Distinct dtypes of inputs and outputs."""
        return list(dict.fromkeys(name for name in (*self.reads, *self.writes) if name))


def find_needs(model: ModelProto) -> list[Need]:
    """Return the operators of a model with inferred shapes and unique node names, in graph order."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    odd = {info.name for info in (*model.graph.input, *model.graph.output) if info.type.WhichOneof("value") in _ODD}
    found: dict[tuple[object, ...], Need] = {}
    for place, node, scope in placed_nodes(model.graph):
        version = versions.get(node.domain, versions.get("" if node.domain == "ai.onnx" else node.domain, 0))
        end = next((name for name in (*node.input, *node.output) if name in odd), "")
        need = _need(node, version, scope, end)
        found.setdefault(need.form, need).add(place, ", ".join(_shape(name, scope) for name in node.output if name))
    return list(found.values())


def _need(node: NodeProto, version: int, scope: Scope, end: str) -> Need:
    """Return the need of a node, without its name and shapes."""
    reads, writes = (tuple(_dtype(name, scope) if name else "" for name in part) for part in (node.input, node.output))
    return Need(op_name(node), version, reads, writes, {a.name: _text(a) for a in node.attribute}, [], node, scope, end)


def op_name(node: NodeProto) -> str:
    """Return ``Conv``, or ``domain::name`` for an operator outside the ONNX domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _dtype(name: str, scope: Scope) -> str:
    from onnx import TensorProto

    found = scope.get(name)
    if found is None:
        return UNKNOWN
    if isinstance(found, TensorProto):
        kind = found.data_type
    else:
        form = found.type.WhichOneof("value")
        if form not in (None, "tensor_type"):
            return str(form).removesuffix("_type")
        kind = found.type.tensor_type.elem_type
    if not kind:
        return UNKNOWN
    word = str(TensorProto.DataType.Name(kind)).lower()
    return {"float": "float32", "double": "float64"}.get(word, word)


def _shape(name: str, scope: Scope) -> str:
    from onnx import TensorProto

    from engine.onnx import dims

    found = scope.get(name)
    if isinstance(found, TensorProto):
        return "x".join(map(str, found.dims)) or "scalar"
    if found is None or not found.type.tensor_type.HasField("shape"):
        return UNKNOWN
    words = [_size(d) for d in dims(found)]
    return ("x" if all(map(str.isdigit, words)) else " x ").join(words) or "scalar"


def _size(dim: int | str | None) -> str:
    return str(dim) if isinstance(dim, int) or (dim or "").isidentifier() else UNKNOWN


def _text(attribute: AttributeProto) -> str:
    from onnx import AttributeProto, helper

    kind = AttributeProto.AttributeType.Name(attribute.type)
    if kind in ("TENSOR", "GRAPH", "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "UNDEFINED"):
        return str(kind).lower()
    value = helper.get_attribute_value(attribute)
    return str(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)
