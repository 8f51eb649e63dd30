"""Shape inference, binding of input shapes, and the bytes that each node reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from engine.onnx.large import (
    add_tensors,
    clear_values,
    copy_model,
    copy_without_initializers,
    copy_without_values,
    is_light,
)
from engine.onnx.view import dims, graph_inputs, is_fixed, replace_items, used_names
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_SMALL = 1024  # maximum number of elements of a float constant that shapes may depend on (scales of Resize)
_MOST_SIZES = 2**16  # maximum number of elements of other constants that shapes may depend on

INFERENCE_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    TypeError,
    MemoryError,
)
"""Errors of onnx for inconsistent shapes, invalid nodes, and (from C++) absurd sizes."""

_MOST_FOLLOWED = 2**21
"""Maximum length of 1-D tensors whose values onnx (1.23) may propagate; it allocates about 160 bytes per element."""

_UNTYPED = ("", "GroupNormalization")  # onnx does not infer its output, which has the type of the first input


def infer_shapes(model: ModelProto) -> ModelProto:
    """Return a copy with inferred shapes and dtypes, without large weights in onnx; raise ModelError on failure."""
    return _inferred(_light(model), model)


def infer_in_place(model: ModelProto) -> None:
    """Do the same to a model itself, whose weights are then not copied."""
    inferred = _sized(_light(model), model).graph
    for field in ("node", "input", "output", "value_info"):
        found = getattr(inferred, field)
        if getattr(model.graph, field) != found:  # nodes are as before unless they have bodies
            replace_items(getattr(model.graph, field), found)


def _inferred(light: ModelProto, model: ModelProto) -> ModelProto:
    """Infer the shapes of a model without weights, and add the weights of ``model``."""
    inferred = _sized(light, model)
    del inferred.graph.initializer[:]
    add_tensors(inferred.graph, model.graph.initializer)
    return inferred


def _light(model: ModelProto) -> ModelProto:
    """Return a copy without the data of large weights, which is never copied."""
    if all(is_light(tensor) for tensor in model.graph.initializer):
        light = copy_model(model)
        for tensor in light.graph.initializer:
            if _is_heavy(tensor):
                clear_values(tensor)
        return light
    light = copy_without_initializers(model)
    for tensor in model.graph.initializer:
        if _is_heavy(tensor):
            copy_without_values(tensor, light.graph.initializer.add())
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light


def _is_heavy(tensor: TensorProto) -> bool:
    return bool(prod(tensor.dims) > (_SMALL if tensor.data_type in _FLOATS else _MOST_SIZES))


def _sized(light: ModelProto, model: ModelProto) -> ModelProto:
    """Return ``light`` with inferred shapes; ``model`` is the original with weights."""
    untyped = [i for i, node in enumerate(light.graph.node) if (node.domain, node.op_type) == _UNTYPED]
    for node in (light.graph.node[i] for i in untyped):
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    for info in (*light.graph.input, *light.graph.output, *light.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0:  # negative means dynamic; onnx's inference crashes for some values
                dim.Clear()
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=not _has_long(light))
    except INFERENCE_ERRORS as error:
        raise ModelError(f"the shapes of the model's tensors are inconsistent: {one_line(error)}") from error
    for i in untyped:
        inferred.graph.node[i].CopyFrom(model.graph.node[i])
    return inferred


def _has_long(model: ModelProto) -> bool:
    """Return whether a model has 1-D tensors that are too long, or may compute some from equally large inputs."""
    weights = [tuple(tensor.dims) for tensor in model.graph.initializer]
    given = [_known(info) for info in model.graph.input]
    if any(_is_long(shape) for shape in (*weights, *given)):
        return True
    if all(prod(shape) <= _MOST_FOLLOWED for shape in given):
        return False
    inferred = onnx.shape_inference.infer_shapes(model)
    return any(_is_long(_known(info)) for info in (*inferred.graph.value_info, *inferred.graph.output))


def _is_long(shape: Sequence[int]) -> bool:
    return len(shape) == 1 and shape[0] > _MOST_FOLLOWED


def _known(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return a tensor's shape with 1 for dynamic dimensions."""
    return tuple(size if isinstance(size, int) else 1 for size in dims(info))


def check_types(model: ModelProto) -> None:
    """Raise ModelError for nodes that mix float16 and float32 inputs, which a conversion of all tensors would hide."""
    kinds = {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
    kinds.update(tensor.data_type for tensor in model.graph.initializer)
    if TensorProto.FLOAT16 not in kinds:
        _check_declared(model)
        return
    try:
        onnx.shape_inference.infer_shapes(_light(model), check_type=True)
    except INFERENCE_ERRORS as error:
        raise ModelError(f"the types of the model's tensors are inconsistent: {one_line(error)}") from error


def _check_declared(model: ModelProto) -> None:
    """Raise ModelError for internal tensors whose declared type differs from the inferred one, as ONNX Runtime does."""
    declared = {info.name: info.type.tensor_type.elem_type for info in model.graph.value_info}
    if not declared:
        return
    bare = _light(model)
    del bare.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except INFERENCE_ERRORS:  # reported by infer_shapes
        return
    for info in inferred.graph.value_info:
        found, kind = info.type.tensor_type.elem_type, declared.get(info.name)
        if found and kind and found != kind:
            names = (TensorProto.DataType.Name(one) for one in (kind, found))
            raise ModelError(f"tensor {info.name!r} is declared as {' and is '.join(names)}; export the model again")


def bind_shapes(model: ModelProto, shapes: dict[str, Sequence[int]]) -> ModelProto:
    """Return a copy with these input shapes and all others inferred; raise ModelError if the model rejects them."""
    bound = _light(model)
    given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    before = [dims(info) for info in graph_inputs(bound)]
    for info in graph_inputs(bound):
        have = info.type.tensor_type.shape.dim
        if len(have) != len(shapes.get(info.name, ())):
            raise ModelError(f"the model cannot take inputs of shape {given}: {info.name!r} has {len(have)} dimensions")
        for dim, size in zip(have, shapes[info.name], strict=True):
            dim.dim_value = size
    _open_outputs(bound, changed=before != [dims(info) for info in graph_inputs(bound)])
    del bound.graph.value_info[:]
    declared = _untyped(bound)
    try:
        return _fill_outputs(_typed(_inferred(bound, model), declared))
    except ModelError as error:
        raise ModelError(f"the model cannot take inputs of shape {given}: {error}") from error


def _open_outputs(model: ModelProto, changed: bool) -> None:
    """Clear output dimensions that depend on the inputs: an outdated size or symbol would contradict the inference."""
    known = {info.name: info.type for info in graph_inputs(model)}
    weights = {tensor.name for tensor in model.graph.initializer}
    for info in model.graph.output:
        if info.name in known:
            info.type.CopyFrom(known[info.name])
            continue
        for dim in info.type.tensor_type.shape.dim:
            if (changed and info.name not in weights) or not is_fixed(dim):
                dim.Clear()


def _untyped(model: ModelProto) -> list[int]:
    """Clear the element types of a model's outputs, which override the inferred ones; return them."""
    declared = [info.type.tensor_type.elem_type for info in model.graph.output]
    known = {info.name for info in (*graph_inputs(model), *model.graph.initializer)}
    for info, kind in zip(model.graph.output, declared, strict=True):
        if kind and info.name not in known:
            info.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    return declared


def _typed(model: ModelProto, declared: Sequence[int]) -> ModelProto:
    """Restore the element types of the outputs, also of stored float16; raise ModelError for different ones."""
    for info, kind in zip(model.graph.output, declared, strict=True):
        found = info.type.tensor_type.elem_type
        if kind and found not in (kind, onnx.TensorProto.UNDEFINED):
            have, want = (onnx.TensorProto.DataType.Name(one).lower() for one in (found, kind))
            raise ModelError(f"output {info.name!r} is declared as {want}, but computed as {have}; export it again")
        if kind:
            info.type.tensor_type.elem_type = kind
    return model


def _fill_outputs(model: ModelProto) -> ModelProto:
    """Copy the inferred shape to other occurrences of an output that is listed twice."""
    known = {info.name: info for info in model.graph.output if None not in dims(info)}
    for info in model.graph.output:
        if info.name in known and None in dims(info):
            info.type.CopyFrom(known[info.name].type)
    return model


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node with the shapes and bytes of all tensors that it reads and writes."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int | None, ...]]
    bytes: dict[str, int | None]


def view(model: ModelProto) -> list[NodeView]:
    """Return the main graph's nodes in order with inferred shapes and sizes in bytes (``None`` if unknown)."""
    inferred = _sized(_light(model), model)
    shapes: dict[str, tuple[int | None, ...]] = {}
    sizes: dict[str, int | None] = {}
    for tensor in inferred.graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        sizes[tensor.name] = _bytes(tuple(tensor.dims), tensor.data_type)
    for info in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        shape = tuple(d if isinstance(d, int) else None for d in dims(info))
        shapes[info.name] = shape
        sizes[info.name] = _bytes(shape, info.type.tensor_type.elem_type)
    return [_node_view(i, node, shapes, sizes) for i, node in enumerate(inferred.graph.node)]


def _node_view(
    i: int, node: NodeProto, shapes: dict[str, tuple[int | None, ...]], sizes: dict[str, int | None]
) -> NodeView:
    names = {*used_names(node), *node.output}
    return NodeView(
        node.name or f"{node.op_type}_{i}",
        node.op_type,
        tuple(node.input),
        tuple(node.output),
        {name: shapes[name] for name in sorted(names) if name in shapes},
        {name: sizes[name] for name in sorted(names) if name in sizes},
    )


def _bytes(shape: tuple[int | None, ...], kind: int) -> int | None:
    if kind == TensorProto.UNDEFINED or any(d is None for d in shape):
        return None
    return prod(d or 0 for d in shape) * int(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize)
