"""Angles made of whole numbers: positions and timesteps times a rate, on their way into a sine or cosine."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, TensorProto

from engine.onnx.view import subgraphs

WAVES = frozenset(("Cos", "Sin"))

_CARRY = frozenset(
    ("Add", "Concat", "Div", "Einsum", "Expand", "Flatten", "Identity", "MatMul", "Mul", "Neg", "Reshape", "Slice",
     "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", *WAVES)
)  # fmt: skip
"""Operators that an angle may pass."""


def angle_nodes(graph: GraphProto, floats: frozenset[str]) -> frozenset[str]:
    """Return what is written by the nodes that make sines and cosines of whole numbers and constants alone.

    A timestep of 999 times a rate, rounded to float16, is off by up to a quarter of a radian, and so is a position far
    down a text. Models compute these in float32 whatever their own dtype is; they are a few numbers.

    Args:
        graph: nodes in topological order. floats: names of its float tensors.
    """
    made = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    kept: set[str] = set()
    for node in graph.node:
        if node.op_type in WAVES:
            way = _way(node, made, constants, floats)
            kept |= way if any(made[name].op_type == "Cast" for name in way) else set()
    return frozenset(kept)


def _way(end: NodeProto, made: Mapping[str, NodeProto], constants: set[str], floats: frozenset[str]) -> set[str]:
    """Return what the nodes before a wave write, back to whole numbers; empty where other floats come in."""
    found: set[str] = set()
    waiting = [end]
    while waiting:
        node = waiting.pop()
        found.update(node.output)
        if _from_whole_numbers(node, floats) or node.op_type in ("Constant", "ConstantOfShape", "Range"):
            continue
        if node.op_type not in _CARRY or any(True for _ in subgraphs(node)):
            return set()
        for name in node.input:
            if name in floats and name not in constants and name not in found:
                if name not in made:
                    return set()  # an input of the model
                waiting.append(made[name])
    return found


def _from_whole_numbers(node: NodeProto, floats: frozenset[str]) -> bool:
    to_float = any(attribute.name == "to" and attribute.i == TensorProto.FLOAT for attribute in node.attribute)
    return node.op_type == "Cast" and to_float and node.input[0] not in floats
