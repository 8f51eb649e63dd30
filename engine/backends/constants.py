"""Values of nodes that follow from constants and known shapes, computed once by ONNX Runtime.

For compilers that take shapes, axes and tables as constants only.
"""

from __future__ import annotations

import logging
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.ort import HostSession
from engine.base import EngineError, ModelError
from engine.signature import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import GraphProto, ModelProto, NodeProto

MOST_BYTES = 1 << 28
"""Largest value that replaces a node, in bytes; larger ones are left to the compiler."""

_log = logging.getLogger(__name__)


def with_constants(model: ModelProto) -> ModelProto:
    """Return a copy in which nodes that follow from constants and shapes are constants, and all known shapes are given.

    Args:
        model: with the shapes of its inputs bound.

    Raise ModelError if the shapes of the model's tensors contradict each other.
    """
    from engine.batching.settle import settled
    from engine.onnx.shapes import infer_shapes

    while True:
        model = settled(infer_shapes(model))
        if not _fold(model):
            _drop_unread(model.graph)
            return model


def _fold(model: ModelProto) -> bool:
    """Replace the nodes that are constants now, in place; return whether it changed."""
    from onnx import numpy_helper

    from engine.onnx.view import replace_items

    graph = model.graph
    shapes, empty = _shapes(graph), _empty(graph)
    nodes = _foldable(graph, shapes, empty)
    sized = {node.output[0]: _size(node, shapes) for node in nodes if _is_sized(node, shapes)}
    others = [node for node in nodes if node.output[0] not in sized]
    values = dict(sized)
    removed = {*sized}
    try:
        values |= _computed(model, others, {**empty, **sized})
    except (ModelError, EngineError) as error:
        _log.info("%d nodes of constants stay: %s", len(others), error)
    else:
        removed |= {node.output[0] for node in others}
    if not removed:
        return False
    replace_items(graph.node, [node for node in graph.node if not removed.intersection(node.output[:1])])
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    return True


def _reads(node: NodeProto) -> list[str]:
    from engine.onnx.view import used_names

    return list(used_names(node))


def _empty(graph: GraphProto) -> dict[str, Array]:
    """Return the tensors without elements, which are constants: a sum over none of them is 0 for any compiler."""
    from onnx import helper

    shapes = _shapes(graph)
    infos = (*graph.input, *graph.value_info, *graph.output)
    kinds = {info.name: info.type.tensor_type.elem_type for info in infos}
    return {
        name: np.zeros(shapes[name], helper.tensor_dtype_to_np_dtype(kind))
        for name, kind in kinds.items()
        if kind and 0 in shapes.get(name, ())
    }


def _foldable(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]], empty: Mapping[str, Array]) -> list[NodeProto]:
    """Return the nodes whose outputs follow from constants, shapes or empty tensors, in order."""
    from engine.batching.random_operators import RANDOM
    from engine.onnx.view import subgraphs

    known = {tensor.name for tensor in graph.initializer} | empty.keys()
    found = []
    for node in graph.node:
        bodies = any(True for _ in subgraphs(node))
        if node.op_type in RANDOM or bodies or node.domain not in ("", "ai.onnx") or len(node.output) == 0:
            continue
        constant = known.issuperset(filter(None, node.input)) and (any(node.input) or node.op_type == "Constant")
        if _is_sized(node, shapes) or (constant and _is_small(node, shapes)):
            found.append(node)
            known.update(filter(None, node.output))
    return found


def _is_small(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether the outputs of a node are small enough, at 8 bytes an element, or of unknown size."""
    return all(8 * prod(shapes.get(name, ())) <= MOST_BYTES for name in node.output)


def _shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    from engine.onnx.view import dims

    infos = (*graph.input, *graph.value_info, *graph.output)
    typed = [info for info in infos if info.type.tensor_type.HasField("shape")]
    found = {info.name: dims(info) for info in typed} | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {name: tuple(map(int, shape)) for name, shape in found.items() if all(isinstance(d, int) for d in shape)}


def _is_sized(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    return node.op_type in ("Shape", "Size") and node.input[0] in shapes


def _size(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> Array:
    """Return the output of a Shape or Size of a tensor of known shape."""
    from onnx import helper

    shape = shapes[node.input[0]]
    if node.op_type == "Size":
        return np.array(prod(shape), np.int64)
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return np.array(shape[given.get("start", 0) : given.get("end")], np.int64)


def _computed(model: ModelProto, nodes: Sequence[NodeProto], given: Mapping[str, Array]) -> dict[str, Array]:
    """Run nodes, whose inputs are constants or ``given``, as a model of their own; return what other nodes read."""
    from onnx import ModelProto, numpy_helper

    from engine.onnx.large import add_tensors

    own = {node.output[0] for node in nodes}
    read = {info.name for info in model.graph.output}
    read.update(name for node in model.graph.node if not own.intersection(node.output[:1]) for name in _reads(node))
    wanted = [name for node in nodes for name in node.output if name in read]
    if not wanted:
        return {}
    part = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    graph = part.graph
    graph.name = "constants"
    graph.node.extend(nodes)
    needed = {name for node in nodes for name in node.input}
    add_tensors(graph, [tensor for tensor in model.graph.initializer if tensor.name in needed])
    known = {tensor.name for tensor in graph.initializer} | {name for node in nodes for name in node.output}
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in given.items() if name in needed - known
    )
    for name in wanted:
        graph.output.add(name=name)
    return dict(zip(wanted, HostSession(part, threads=1).run([]), strict=True))


def _drop_unread(graph: GraphProto) -> None:
    """Remove nodes and constants that no output depends on."""
    from engine.onnx.large import keep_tensors

    needed = {info.name for info in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(_reads(node))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    keep_tensors(graph, lambda tensor: tensor.name in needed)
