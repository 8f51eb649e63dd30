"""What the float16 conversion of the library forgets: the bodies of If, Loop and Scan, and outputs that nodes read.

Bodies stay float32, and what they read from outside is cast for them.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import NodeProto, TensorProto, helper

from engine.onnx.view import rename_inputs, subgraphs, used_names


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
