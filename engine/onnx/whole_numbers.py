"""Where a model turns whole numbers into floats and a narrow float would spoil them: timesteps, positions, counts.

bfloat16 holds whole numbers up to 256 exactly, float16 up to 2048. Rounded before it is scaled, a number keeps its
relative error; before a sine it does not, nor before a difference or a comparison. A sinusoidal embedding of timestep
999 in bfloat16 is that of timestep 1000.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from engine.onnx.half_range import constant_tensors
from engine.onnx.view import dims, subgraphs

_FLOATS = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))

_WAVES = frozenset(("Sin", "Cos"))
_SENSITIVE = _WAVES | {
    *("Tan", "Exp", "Floor", "Ceil", "Round", "Mod"),
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
}
"""Operators that make an error of their input larger than it was, relative to it."""

_PASSING = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Pow", "Sqrt", "Log", "Reciprocal", "Min", "Max", "Clip", "Where"),
        *("Cast", "Identity", "Constant", "ConstantOfShape", "Range", "Expand", "Tile", "Concat", "Slice", "Split"),
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather"),
    }
)
"""Operators whose outputs are still few numbers that follow from the whole ones; what mixes many (MatMul) is not."""

_FEW = 2.0
"""Constants up to this may be added without harm: the 1 of ``1 - mask``."""


def exact_outputs(graph: GraphProto) -> set[str]:
    """Return the outputs of the nodes that have to compute in float32 whatever the rest computes in.

    They lie between whole numbers, or an input of one number per sample, and an operator that is sensitive.

    Args:
        graph: with inferred types, nodes in topological order. Bodies of If, Loop and Scan are left alone.
    """
    found = _Walk(graph)
    ends = [node for node in found.following if found.is_sensitive(node)]
    writers = {name: node for node in found.following for name in node.output if name}
    kept: set[str] = set()
    todo = [name for node in ends for name in node.output if name]
    while todo:
        name = todo.pop()
        if name in kept or name not in writers:
            continue
        kept.update(filter(None, writers[name].output))
        todo.extend(writers[name].input)
    return kept


class _Walk:
    """The nodes that follow from whole numbers and constants alone, in order: ``following``."""

    def __init__(self, graph: GraphProto) -> None:
        infos = (*graph.input, *graph.value_info, *graph.output)
        self.kinds = {info.name: info.type.tensor_type.elem_type for info in infos}
        self.sizes = {info.name: dims(info) for info in infos}
        self.constants = constant_tensors(graph)
        self.sizes |= {name: list(tensor.dims) for name, tensor in self.constants.items()}
        self.kinds |= {name: tensor.data_type for name, tensor in self.constants.items()}
        self.numbers = set(_single_numbers(graph)) & _waved(graph)
        self.known = set(self.constants)
        """What follows, and constants."""
        self.moving = {info.name for info in graph.input if not self.is_float(info.name)} | self.numbers
        """What follows from more than constants."""
        self.following = []
        for node in graph.node:
            if not self.moving.isdisjoint(node.input) or node.op_type in ("Shape", "Size"):
                self.moving.update(filter(None, node.output))
            if self._follows(node):
                self.following.append(node)

    def is_float(self, name: str) -> bool:
        return self.kinds.get(name, TensorProto.FLOAT) in _FLOATS

    def _follows(self, node: NodeProto) -> bool:
        """Say whether a node follows, and take note of its outputs if it does."""
        passes = node.op_type in _PASSING | _SENSITIVE or self._is_outer(node)
        if node.domain or not passes or any(True for _ in subgraphs(node)):
            return False
        read = [name for name in node.input if name and self.is_float(name)]
        follows = all(name in self.known or name in self.numbers for name in read) and not self._is_lookup(node)
        if follows:
            self.known.update(filter(None, node.output))
        return follows

    def _is_outer(self, node: NodeProto) -> bool:
        """Say whether a node is an outer product, which adds nothing up: positions times frequencies."""
        sizes = [self.sizes.get(name, []) for name in node.input]
        return node.op_type == "MatMul" and (sizes[0][-1:] == [1] or sizes[1][-2:-1] == [1])

    def _is_lookup(self, node: NodeProto) -> bool:
        """Say whether a node takes rows of a table of weights: what it gives is weights, rounded as they are."""
        return node.op_type == "Gather" and node.input[0] in self.constants and self.is_float(node.input[0])

    def is_sensitive(self, node: NodeProto) -> bool:
        """Say whether a node that follows makes the error of a rounded input larger."""
        floats = [name for name in node.input if name and self.is_float(name) and name not in self.constants]
        if not floats or self.moving.isdisjoint(node.output):
            return False
        if node.op_type == "Cast":
            return not self.is_float(node.output[0])
        if node.op_type in ("Add", "Sub"):
            return len(floats) > 1 or any(self._is_large(name) for name in node.input)
        return node.op_type in _SENSITIVE

    def _is_large(self, name: str) -> bool:
        tensor = self.constants.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return False
        return bool(np.abs(numpy_helper.to_array(tensor).astype(np.float64)).max(initial=0.0) > _FEW)


def _single_numbers(graph: GraphProto) -> Iterator[str]:
    """Yield the float inputs of one number per sample, or of one number."""
    constants = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        whole = info.type.tensor_type.HasField("shape") and info.name not in constants
        if whole and info.type.tensor_type.elem_type in _FLOATS and all(size == 1 for size in dims(info)[1:]):
            yield info.name


def _waved(graph: GraphProto) -> set[str]:
    """Return the names from which a way of passing operators leads to a sine or cosine."""
    reached: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type in _WAVES or (node.op_type in _PASSING and reached.intersection(node.output)):
            reached.update(filter(None, node.input))
    return reached
