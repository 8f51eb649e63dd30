"""Float16 conversion of parts that the library does not handle: control flow, outputs that are also read, single ends.

Bodies of If, Loop and Scan stay float32, and the values they capture are cast. Individual inputs and outputs may stay
float32.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from engine.onnx.view import rename_inputs, replace_items, subgraphs, used_names

_FLOAT = TensorProto.FLOAT


def has_bodies(node: NodeProto) -> bool:
    """Return whether a node has subgraphs."""
    return any(True for _ in subgraphs(node))


def widen_captured(graph: onnx.GraphProto) -> None:
    """Cast the float16 values that bodies of a converted graph capture to float32, in place and unsorted."""
    infos = (*graph.value_info, *graph.input, *graph.output)
    half = {info.name for info in infos if info.type.tensor_type.elem_type == TensorProto.FLOAT16}
    half |= {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT16}
    cast: set[str] = set()
    for node in graph.node:
        if not has_bodies(node):
            continue
        names = {name: f"{name}/float32" for name in used_names(node) if name in half}
        rename_inputs(node, names)
        cast |= names.keys()
    for name in sorted(cast):
        wide = f"{name}/float32"
        graph.node.append(helper.make_node("Cast", [name], [wide], f"{wide}/cast", to=TensorProto.FLOAT))


def split_outputs(graph: onnx.GraphProto) -> list[str]:
    """Let nodes read a copy of a graph output, in place; return the names of these outputs.

    The library ignores the types of outputs when it casts for a float32 node, and may remove an output with two casts.
    """
    read = {name for node in graph.node for name in used_names(node)}
    ends = [info for info in graph.output if info.name in read]
    names = {info.name: f"{info.name}/read" for info in ends}
    for node in graph.node:
        rename_inputs(node, names)
    for info in ends:
        graph.node.append(helper.make_node("Identity", [info.name], [names[info.name]], names[info.name]))
        graph.value_info.add().CopyFrom(info)
        graph.value_info[-1].name = names[info.name]
    return list(names)


def join_outputs(graph: onnx.GraphProto, ends: Iterable[str]) -> None:
    """Undo :func:`split_outputs`."""
    names = {f"{name}/read": name for name in ends}
    left = [node for node in graph.node if node.output[0] not in names]
    for node in left:
        rename_inputs(node, names)
    replace_items(graph.node, left)
    replace_items(graph.value_info, [info for info in graph.value_info if info.name not in names])


def is_cast(node: NodeProto, kind: str, to: int) -> bool:
    """Return whether a node is a cast that the library added, such as ``name_input_cast0``."""
    return node.op_type == "Cast" and node.name.rstrip("0123456789").endswith(kind) and node.attribute[0].i == to


def keep_input(graph: onnx.GraphProto, info: ValueInfoProto) -> None:
    """Restore float32 for an input of a converted graph, in place: float32 nodes and bodies read it directly."""
    info.type.tensor_type.elem_type = TensorProto.FLOAT
    casts = [node for node in graph.node if node.input[:1] == [info.name] and is_cast(node, "_input_cast", _FLOAT)]
    wide = {node.output[0]: info.name for node in casts}
    left = [node for node in graph.node if not node.output or node.output[0] not in wide]
    half = f"{info.name}/half"
    for node in left:
        if not has_bodies(node):
            rename_inputs(node, {info.name: half})
        rename_inputs(node, wide)
    cast = helper.make_node("Cast", [info.name], [half], f"{half}/cast", to=TensorProto.FLOAT16)
    _put_nodes(graph, [cast, *left])


def keep_output(graph: onnx.GraphProto, info: ValueInfoProto) -> None:
    """Restore float32 for an output of a converted graph, in place and unsorted, if a float32 node writes it."""
    cast = next((node for node in graph.node if info.name in node.output), None)
    if cast is None or not is_cast(cast, "_output_cast", TensorProto.FLOAT16):
        return
    info.type.tensor_type.elem_type = TensorProto.FLOAT
    inner, half = cast.input[0], f"{info.name}/half"
    left = [node for node in graph.node if info.name not in node.output]
    for node in left:
        rename_inputs(node, {info.name: half})
        rename_inputs(node, {inner: info.name})
        for i, name in enumerate(node.output):
            node.output[i] = info.name if name == inner else name
    narrow = helper.make_node("Cast", [info.name], [half], f"{half}/cast", to=TensorProto.FLOAT16)
    _put_nodes(graph, [*left, narrow])
    replace_items(graph.value_info, [other for other in graph.value_info if other.name != inner])


def _put_nodes(graph: onnx.GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the nodes of a graph, without casts that are not read."""
    kept = list(nodes)
    read = {name for node in kept for name in used_names(node)} | {info.name for info in graph.output}
    replace_items(graph.node, [node for node in kept if node.op_type != "Cast" or node.output[0] in read])
