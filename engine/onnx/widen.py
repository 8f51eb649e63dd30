"""Float16 tensors as float32 of the same value."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from engine.onnx.apart import origin
from engine.onnx.large import copy_tensor, copy_without_initializers, copy_without_values, put_raw
from engine.onnx.view import subgraphs, tensors

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def widen(model: ModelProto) -> ModelProto:
    """Return a copy with every float16 tensor as float32 of the same value; casts to float16 still round.

    Weights held apart (:mod:`engine.onnx.apart`) are declared as float32; who holds their values widens them.
    """
    wide = copy_without_initializers(model)
    _widen_graph(wide.graph)
    for tensor in tensors(wide.graph):
        if tensor.data_type == HALF:
            put_raw(tensor, FLOAT, _widened(tensor))
    for tensor in model.graph.initializer:
        if tensor.data_type == HALF and origin(tensor):
            copy_tensor(tensor, wide.graph.initializer.add())
            wide.graph.initializer[-1].data_type = FLOAT
        elif tensor.data_type == HALF:  # a message keeps the memory of what is replaced in it
            copy_without_values(tensor, target := wide.graph.initializer.add())
            put_raw(target, FLOAT, _widened(tensor))
        else:
            copy_tensor(tensor, wide.graph.initializer.add())
    return wide


def _widened(tensor: TensorProto) -> bytes:
    return numpy_helper.to_array(tensor).astype(np.float32).tobytes()


def _widen_graph(graph: GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == HALF:
            info.type.tensor_type.elem_type = FLOAT
    nodes = []
    for node in graph.node:
        for inner in subgraphs(node):
            _widen_graph(inner)
        nodes.extend(_widen_node(node))
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_node(node: NodeProto) -> list[NodeProto]:
    to_half = [a for a in node.attribute if a.name in ("to", "dtype") and a.type == AttributeProto.INT and a.i == HALF]
    if not to_half:
        return [node]
    if node.op_type == "Cast":
        half = f"{node.output[0]}:narrow"
        back = helper.make_node("Cast", [half], [node.output[0]], f"{half}:back", to=FLOAT)
        node.output[0] = half
        return [node, back]
    to_half[0].i = FLOAT
    return [node]
