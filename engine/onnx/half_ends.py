"""What the float16 conversion of the library forgets: bodies of If, Loop and Scan, outputs that are read, single ends.

Bodies stay float32, and what they read from outside is cast for them. Inputs and outputs may stay float32 one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from engine.onnx.view import rename_inputs, subgraphs, used_names

_FLOAT = TensorProto.FLOAT


def has_bodies(node: NodeProto) -> bool:
    """Say whether a node holds graphs of its own."""
    return any(True for _ in subgraphs(node))


def widen_captured(graph: onnx.GraphProto) -> None:
    """Let the bodies of a converted graph read float32 where they read a float16 value from outside, in place.

    The nodes are not in order afterwards.
    """
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
    """Let the nodes that read an output read a copy of it, in place, and return the names of such outputs.

    The library does not look for the types of outputs where it casts for a node that stays float32, and may take an
    output away with two casts that follow one another.
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
    infos = [info for info in graph.value_info if info.name not in names]
    for held, kept in ((graph.node, left), (graph.value_info, infos)):
        del held[:]
        held.extend(kept)


def is_cast(node: NodeProto, kind: str, to: int) -> bool:
    """Say whether a node is a cast that the library added: ``name_input_cast0``."""
    return node.op_type == "Cast" and node.name.rstrip("0123456789").endswith(kind) and node.attribute[0].i == to


def keep_input(graph: onnx.GraphProto, info: ValueInfoProto) -> None:
    """Let an input of a converted graph take float32 again, in place: float32 nodes and bodies read it as it is."""
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
    """Let an output of a converted graph be float32 again, in place, where a float32 node writes it.

    The nodes are not in order afterwards.
    """
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
    infos = [known for known in graph.value_info if known.name != inner]
    del graph.value_info[:]
    graph.value_info.extend(infos)


def _put_nodes(graph: onnx.GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Give a graph other nodes, without casts that nothing reads."""
    kept = list(nodes)
    read = {name for node in kept for name in used_names(node)} | {info.name for info in graph.output}
    kept = [node for node in kept if node.op_type != "Cast" or node.output[0] in read]
    del graph.node[:]
    graph.node.extend(kept)
