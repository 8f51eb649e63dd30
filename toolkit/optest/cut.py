"""Selection of one node of a model, and its extraction as a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import Array, ConfigError, ModelError
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.graph.tensors import placed_nodes, scope_of
from toolkit.graph.trace import Traced

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

    from toolkit.graph.tensors import Scope


def find_node(model: ModelProto, wanted: str, path: Path) -> NodeProto:
    """Return the node with a name, an index such as ``12``, or an output tensor; raise ConfigError if there is none.

    Nodes have unique names (:func:`toolkit.graph.nodes.load_named`).
    """
    nodes: list[NodeProto] = list(model.graph.node)
    writers = {name: node for node in reversed(nodes) for name in node.output}
    places = {str(i): node for i, node in enumerate(nodes)}
    named = {node.name: node for node in reversed(nodes)}
    tables = (named, wanted), (writers, wanted), (places, wanted.removeprefix("#"))
    found = [table[word] for table, word in tables if wanted and word in table]
    if not found:
        raise ConfigError(f"{path}{_no_node(model, nodes, wanted)}")
    return found[0]


def _no_node(model: ModelProto, nodes: Sequence[NodeProto], wanted: str) -> str:
    """Return the message for an unknown node."""
    same = [node.name for node in nodes if wanted and re.fullmatch(rf"{re.escape(wanted)}#\d+_*", node.name)]
    if same:
        return f": {len(same)} nodes are named {wanted!r}; pass one of: {', '.join(same)}"
    holder = _holder(model, wanted)
    if holder:
        return f": {wanted!r} is in the body of {holder!r}, whose inner values are not accessible; pass {holder!r}"
    near = did_you_mean(wanted, [name for node in nodes for name in (node.name, *node.output)])
    return f" has no node {wanted!r};{near} pass a node's name, its output tensor, or 0 to {len(nodes) - 1}"


def _holder(model: ModelProto, wanted: str) -> str:
    """Return the node of the main graph whose body has a node or tensor of the name, or ""."""
    for place, node, _ in placed_nodes(model.graph):
        if wanted and wanted in (place, place.rpartition("/")[2], *node.output):
            for holder in model.graph.node:
                if place.startswith(f"{holder.name}/"):
                    return str(holder.name)
    return ""


def single_node(
    model: ModelProto, node: NodeProto, values: Mapping[str, Array] | None = None, scope: Scope | None = None
) -> ModelProto:
    """Return a model of one node with its weights; all other tensors it reads are inputs.

    Args:
        model: model of the node, with inferred shapes unless ``values`` has all tensors.
        node: one of its nodes. values: arrays by tensor name, which set the shapes of inputs and outputs.
        scope: tensors in scope of a node in a body; ``None`` takes those of the main graph.

    Raise ModelError if the type of an input of the node is unknown.
    """
    from onnx import ModelProto, TensorProto, helper

    from engine.onnx import used_names

    known, values = scope_of(model.graph) if scope is None else scope, values or {}
    read = dict.fromkeys(used_names(node))
    weights = {name: found for name in read if isinstance(found := known.get(name), TensorProto)}
    inputs = [_input(name, known, values, node) for name in read if name not in weights]
    outputs = [_output(name, values) for name in node.output if name]
    graph = helper.make_graph([node], node.name or node.op_type, inputs, outputs, list(weights.values()))
    cut = ModelProto()
    cut.CopyFrom(helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4)))
    return cut


def _input(name: str, scope: Scope, values: Mapping[str, Array], node: NodeProto) -> ValueInfoProto:
    from onnx import TensorProto, helper

    if name in values:
        kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
        return helper.make_tensor_value_info(name, kind, values[name].shape)
    found = scope.get(name)
    if found is None or isinstance(found, TensorProto) or found.type.WhichOneof("value") is None:
        raise ModelError(f"node {node.name!r}: the type of its input {name!r} is unknown; export the model again")
    return found


def _output(name: str, values: Mapping[str, Array]) -> ValueInfoProto:
    from onnx import ValueInfoProto, helper

    if name not in values:
        return ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)


def typed(model: ModelProto) -> ModelProto:
    """Return a model with inferred output types; raise ModelError if onnx has no schema for the node's operator."""
    from engine.onnx import infer_shapes

    inferred = infer_shapes(model)
    if any(info.type.WhichOneof("value") is None for info in inferred.graph.output):
        op = model.graph.node[0]
        raise ModelError(f"onnx has no schema for {op.domain or 'ai.onnx'}::{op.op_type}: its outputs have no type")
    return inferred


def check_node(node: NodeProto, run: Traced) -> None:
    """Check that a node's inputs and outputs can be stored; raise ModelError if one is not an array of numbers."""
    from engine.onnx import used_names

    given = {spec.name: spec.dtype for spec in run.inputs if spec.dtype.kind not in "fiub"}
    odd = run.skipped | {name: "string" if dtype.kind == "O" else dtype.name for name, dtype in given.items()}
    for name in (*used_names(node), *node.output):
        if name in odd:
            why = f"uses {name!r} of type {odd[name]}, not an array of numbers"
            raise ModelError(f"node {node.name!r} {why}; choose another node")
