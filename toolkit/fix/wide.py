"""Float32 form of a model with float16 tensors, in which only the weights are rounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

_FLOAT, _HALF = 1, 10
"""``onnx.TensorProto`` element types."""


def float32_form(model: ModelProto) -> ModelProto:
    """Return a model with every float16 tensor converted to float32; a model without float16 is returned unchanged."""
    from engine.onnx import copy_model
    from engine.sdaa import widen

    if not has_float16(model):
        return model
    wide = copy_model(model)
    _without_rounding(wide.graph)
    return widen(wide)


def has_float16(model: ModelProto) -> bool:
    """Return whether a weight, an input, an output or a known tensor of a model is float16."""
    from engine.onnx import tensors

    graph = model.graph
    held = {tensor.data_type for tensor in tensors(graph)}
    held |= {info.type.tensor_type.elem_type for info in (*graph.input, *graph.output, *graph.value_info)}
    return _HALF in held


def _without_rounding(graph: GraphProto) -> None:
    """Change casts to float16 into casts to float32: in a float16 model they set the storage type."""
    from engine.onnx import subgraphs

    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF:
                attribute.i = _FLOAT
        for inner in subgraphs(node):
            _without_rounding(inner)


def lifted(model: ModelProto) -> ModelProto:
    """Return a copy of a float32 model with float Constant nodes of the main graph converted to weights: a weight can
    be float32 for one reader and float16 for another, unlike the output of a node.
    """
    import numpy as np
    from onnx import numpy_helper

    from engine.onnx import copy_model

    copy = copy_model(model)
    copy.ir_version = max(copy.ir_version, 4)
    graph = copy.graph
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        held = node.attribute[0] if node.op_type == "Constant" and node.attribute else None
        if held is None or not (held.name in ("value_float", "value_floats") or held.t.data_type == _FLOAT):
            graph.node.append(node)
        elif held.name == "value":
            graph.initializer.append(held.t)
            graph.initializer[-1].name = node.output[0]
        else:
            values = np.array(held.f if held.name == "value_float" else held.floats, np.float32)
            graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    return copy


def float32_file(path: Path, folder: Path) -> Path:
    """Return a model file itself, or its float32 form written to ``folder`` if it contains float16."""
    from engine.onnx import save_model
    from toolkit.graph.nodes import load_named

    model = load_named(path)
    wide = float32_form(model)
    if wide is model:
        return path
    save_model(wide, folder / path.name)
    return folder / path.name
