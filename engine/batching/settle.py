"""Sizes that onnx's shape inference leaves open although they follow from the inputs' shapes.

A model exported with dynamic sizes computes shapes at run time (Shape, Gather, Concat, Reshape). With the inputs'
shapes bound, the few values of such computations are known, and so is every size that depends on them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from engine.signature import Array

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_MOST = 256  # largest number of elements of a tensor of sizes


def has_open_sizes(model: ModelProto) -> bool:
    """Return whether a tensor of the main graph has an unknown size."""
    sized = _shapes(model.graph)
    return any(name not in sized for node in model.graph.node for name in node.output if name)


def settled(model: ModelProto) -> ModelProto:
    """Return a model, bound and inferred, with every size that follows; the same object if none is open."""
    if not has_open_sizes(model):
        return model
    from engine.onnx.large import copy_model
    from engine.onnx.shapes import infer_shapes

    light = _light(model)
    contents = _constants(light.graph)
    while _compute(light.graph, contents):
        del light.graph.value_info[:]
        light = infer_shapes(light)
    result = copy_model(model)
    _take_shapes(result.graph, light.graph)
    return result


def _light(model: ModelProto) -> ModelProto:
    """Return a copy without the contents of weights, on which no size depends."""
    from onnx import ModelProto

    from engine.onnx.large import copy_except, copy_tensor

    light = ModelProto()
    copy_except(model, light, ("graph",))
    light.graph.SetInParent()
    copy_except(model.graph, light.graph, ("initializer",))
    for tensor in model.graph.initializer:
        if prod(tensor.dims) > _MOST:
            light.graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        else:
            copy_tensor(tensor, light.graph.initializer.add())
    return light


def _constants(graph: GraphProto) -> dict[str, Array]:
    from engine.batching.value import objects, read

    found = ((tensor.name, read(tensor, _MOST)) for tensor in graph.initializer if prod(tensor.dims) <= _MOST)
    return {name: objects(array) for name, array in found if array is not None}


def _compute(graph: GraphProto, contents: dict[str, Array]) -> bool:
    """Replace nodes of a graph with inferred shapes by the values known, in place; return whether it changed."""
    from onnx import numpy_helper

    shapes, whole, ends = _shapes(graph), _whole_numbers(graph), {info.name for info in graph.output}
    done = []
    for i, node in enumerate(graph.node):
        name = node.output[0] if len(node.output) == 1 else ""
        found = None if not name or name in contents else _content(node, shapes, contents)
        if found is None:
            continue
        contents[name] = found
        if name in whole and name not in ends:
            done.append(i)
            array = np.array(found.tolist(), whole[name]).reshape(found.shape)
            graph.initializer.append(numpy_helper.from_array(array, name))
    for i in reversed(done):
        del graph.node[i]
    return bool(done)


def _content(node: NodeProto, shapes: dict[str, tuple[int, ...]], contents: dict[str, Array]) -> Array | None:
    """Return the elements of a node's output if they follow from shapes and constants."""
    from onnx import TensorProto, helper

    from engine.batching.folding import constant_content, fold
    from engine.batching.value import objects, read

    if node.op_type in ("Shape", "Size") and node.input:
        shape = shapes.get(node.input[0])
        if shape is None:
            return None
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        sizes = shape[given.get("start", 0) : given.get("end")] if node.op_type == "Shape" else prod(shape)
        return objects(np.array(sizes, np.int64))
    if node.op_type == "Constant":
        held = constant_content(node)
        found = read(held, _MOST) if isinstance(held, TensorProto) else held
        return None if found is None else objects(found)
    if node.domain not in ("", "ai.onnx") or not all(node.input):  # a missing optional input would shift the others
        return None
    return fold(node, [contents.get(name) for name in node.input])


def _shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    from engine.onnx.view import dims

    infos = (*graph.input, *graph.value_info, *graph.output)
    typed = [info for info in infos if info.type.tensor_type.HasField("shape")]
    found = {info.name: dims(info) for info in typed} | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {name: tuple(map(int, shape)) for name, shape in found.items() if all(isinstance(d, int) for d in shape)}


def _whole_numbers(graph: GraphProto) -> dict[str, np.dtype[np.generic]]:
    """Return the types of tensors that hold integers or booleans, by name."""
    from onnx import TensorProto, helper

    kinds = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    infos = [info for info in graph.value_info if info.type.tensor_type.elem_type in kinds]
    return {info.name: helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in infos}


def _take_shapes(graph: GraphProto, other: GraphProto) -> None:
    """Set a graph's shapes to those of another graph's tensors of the same names."""
    from onnx import helper

    known = _shapes(other)
    kinds = {info.name: info.type.tensor_type.elem_type for info in (*graph.value_info, *other.value_info)}
    kinds |= {tensor.name: tensor.data_type for tensor in other.initializer}
    written = {name for node in graph.node for name in node.output if name in known and name in kinds}
    ends = {info.name for info in graph.output}
    kept = [info for info in graph.value_info if info.name not in written]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    made = sorted(written - ends)
    graph.value_info.extend(helper.make_tensor_value_info(name, kinds[name], known[name]) for name in made)
    for info in graph.output:
        if info.name in known:
            shape = helper.make_tensor_type_proto(info.type.tensor_type.elem_type, known[info.name])
            info.type.CopyFrom(shape)
