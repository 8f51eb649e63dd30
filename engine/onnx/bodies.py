"""If, Loop and Scan in a float16 model: their bodies stay float32, and what they read from outside is cast for them."""

from __future__ import annotations

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
