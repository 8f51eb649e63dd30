"""Basic access to a graph: names, subgraphs, declared shapes, signature, order of nodes."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from engine.signature import NO_TENSOR, Dim, TensorSpec, batch_axes, sizes_of, symbols_of
from tecoinfer_modelzoo.errors import ModelError


def subgraphs(node: NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs in a node's attributes (bodies of If, Loop and Scan)."""
    for attribute in node.attribute:
        kind = attribute.type
        if kind == onnx.AttributeProto.GRAPH:
            yield attribute.g
        if kind not in _WITHOUT_GRAPHS:
            yield from attribute.graphs


_WITHOUT_GRAPHS = frozenset(
    getattr(onnx.AttributeProto, name)
    for name in ("FLOAT", "INT", "STRING", "TENSOR", "FLOATS", "INTS", "STRINGS", "TENSORS")
)
"""Types of attributes without graphs.

Reading an unset field of a message allocates memory, and protobuf (7.36) returns all free memory to the system after
every 10,000 pieces it frees: opening a large model then writes to new pages again.
"""


def used_names(node: NodeProto) -> Iterator[str]:
    """Yield the names of all tensors that a node reads, including those captured by its subgraphs."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        own = _own_names(graph)
        for inner in graph.node:
            yield from (name for name in used_names(inner) if name not in own)


def _own_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a body defines."""
    own = {named.name for named in (*graph.initializer, *graph.input)}
    return own | {name for inner in graph.node for name in inner.output}


def rename_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors that a node and its bodies read, except where a body defines the name itself."""
    for i, name in enumerate(node.input):
        node.input[i] = names.get(name, name)
    for graph in subgraphs(node):
        own = _own_names(graph)
        outer = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            rename_inputs(inner, outer)


def replace_items(field: Any, items: Sequence[Any]) -> None:
    """Replace the items of a repeated field."""
    del field[:]
    field.extend(items)


def tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield the constants of a graph: initializers and tensor attributes, including those of subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
        for inner in subgraphs(node):
            yield from tensors(inner)


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that the caller provides, without initializers, which IR 3 lists as inputs, too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def dims(info: ValueInfoProto) -> list[Dim]:
    """Return a declared shape: numbers (0: empty dimension), symbols, or ``None`` for unnamed dynamic dimensions."""
    return [d.dim_value if is_fixed(d) else (d.dim_param or None) for d in info.type.tensor_type.shape.dim]


def is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Return whether a declared dimension is a number."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def signature(model: ModelProto) -> tuple[list[TensorSpec], list[TensorSpec], list[list[Dim]]]:
    """Return inputs, outputs and declared input shapes with symbols; raise ModelError for other types."""
    shapes = [dims(info) for info in graph_inputs(model)]
    inputs = [_tensor_spec(info, axis) for info, axis in zip(graph_inputs(model), batch_axes(shapes), strict=True)]
    return inputs, [_tensor_spec(info, 0) for info in model.graph.output], shapes


def _tensor_spec(info: ValueInfoProto, batch_axis: int | None) -> TensorSpec:
    form, kind = info.type.WhichOneof("value") or "tensor_type", info.type.tensor_type.elem_type
    if form != "tensor_type":
        raise ModelError(f"{info.name!r} is not a tensor but a {form.removesuffix('_type')}; {NO_TENSOR}")
    if kind in (TensorProto.UNDEFINED, TensorProto.BFLOAT16):
        raise ModelError(f"{info.name!r} has a dtype that NumPy does not support; export it as float32 or float16")
    declared = dims(info)
    shape, dtype = sizes_of(declared), np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    return TensorSpec(info.name, dtype, shape, batch_axis, symbols_of(declared))


def metadata(model: ModelProto) -> dict[str, str]:
    """Return the model's ``metadata_props``."""
    return {entry.key: entry.value for entry in model.metadata_props}


def sort_nodes(model: ModelProto, path: Path | str = "model") -> ModelProto:
    """Sort the nodes of the main graph topologically, in place; raise ModelError if the graph has a cycle."""
    nodes = list(model.graph.node)
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [{producer[name] for name in used_names(node) if name in producer} for node in nodes]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return model
    sorter = graphlib.TopologicalSorter({i: sorted(before) for i, before in enumerate(needs)})
    try:
        replace_items(model.graph.node, [nodes[i] for i in sorter.static_order()])
        return model
    except graphlib.CycleError as error:
        names = [nodes[i].name or nodes[i].op_type for i in error.args[1]]
        raise ModelError(f"{path}: the graph has a cycle: {' -> '.join(names)}; export it again") from error
