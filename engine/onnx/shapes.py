"""Shapes: inferred for every tensor, bound to given sizes, and what each node reads and writes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from engine.onnx.large import add_tensors, copy_but, copy_without_values
from engine.onnx.view import dims, graph_inputs, is_fixed, used_names
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_SMALL = 1024
"""Elements up to which a float constant may be a parameter that shapes follow from (scales of a Resize)."""

_MOST_SIZES = 2**16
"""Elements up to which shapes may follow from a constant of another type."""

INFERENCE_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    TypeError,
    MemoryError,
)
"""What onnx raises of shapes that do not fit, of nodes that are none, and, from within C++, of absurd sizes."""

_MOST_FOLLOWED = 2**21
"""Elements of a tensor of one axis up to which onnx (1.23) may follow its values: it takes some 160 bytes for each,
whether it knows any or not."""

_UNTYPED = ("", "GroupNormalization")  # onnx infers nothing of its output, which is as its first input


def infer_shapes(model: ModelProto) -> ModelProto:
    """Return a copy with inferred shapes and dtypes; the contents of large weights do not go through the inference.

    Raises:
        ModelError: shapes or dtypes contradict one another, or the model is no model.
    """
    return _inferred(_light(model), model)


def _inferred(light: ModelProto, model: ModelProto) -> ModelProto:
    """Infer the shapes of a model without weights, and give it those of the one that it was made of."""
    inferred = _sized(light, model)
    del inferred.graph.initializer[:]
    add_tensors(inferred.graph, model.graph.initializer)
    return inferred


def _light(model: ModelProto) -> ModelProto:
    """Return a copy without the contents of large weights, which are never copied: they may be gigabytes."""
    light = ModelProto()
    copy_but(model, light, ("graph",))
    light.graph.SetInParent()
    copy_but(model.graph, light.graph, ("initializer",))
    for tensor in model.graph.initializer:
        if prod(tensor.dims) > (_SMALL if tensor.data_type in _FLOATS else _MOST_SIZES):
            copy_without_values(tensor, light.graph.initializer.add())
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light


def _sized(light: ModelProto, model: ModelProto) -> ModelProto:
    """Return a model without weights with inferred shapes; ``model`` is the one that it was made of."""
    untyped = [i for i, node in enumerate(light.graph.node) if (node.domain, node.op_type) == _UNTYPED]
    for node in (light.graph.node[i] for i in untyped):
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    for info in (*light.graph.input, *light.graph.output, *light.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0:  # a negative size is an open one; of some onnx's inference aborts the process
                dim.Clear()
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=not _has_long(light))
    except INFERENCE_ERRORS as error:
        raise ModelError(f"the shapes of the model's tensors do not fit one another: {one_line(error)}") from error
    for i in untyped:
        inferred.graph.node[i].CopyFrom(model.graph.node[i])
    return inferred


def _has_long(model: ModelProto) -> bool:
    """Say whether a model has, or makes of an input that is as large, a tensor of one axis that is too long."""
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
    """Return a tensor's shape with 1 for what is open."""
    return tuple(size if isinstance(size, int) else 1 for size in dims(info))


def check_types(model: ModelProto) -> None:
    """Refuse nodes that are given float16 and float32 where one type is due; what makes all of one kind hides that.

    Raises:
        ModelError: there is one, as ONNX Runtime would say too.
    """
    kinds = {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
    kinds.update(tensor.data_type for tensor in model.graph.initializer)
    if TensorProto.FLOAT16 not in kinds:
        _check_declared(model)
        return
    try:
        onnx.shape_inference.infer_shapes(_light(model), check_type=True)
    except INFERENCE_ERRORS as error:
        raise ModelError(f"the types of the model's tensors do not fit one another: {one_line(error)}") from error


def _check_declared(model: ModelProto) -> None:
    """Refuse a tensor inside that is declared of another type than the nodes make it.

    Raises:
        ModelError: there is one; ONNX Runtime opens no such model.
    """
    declared = {info.name: info.type.tensor_type.elem_type for info in model.graph.value_info}
    if not declared:
        return
    bare = _light(model)
    del bare.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except INFERENCE_ERRORS:  # said where shapes are inferred
        return
    for info in inferred.graph.value_info:
        made, said = info.type.tensor_type.elem_type, declared.get(info.name)
        if made and said and made != said:
            raise ModelError(
                f"the tensor {info.name!r} is declared as {TensorProto.DataType.Name(said)} and is "
                f"{TensorProto.DataType.Name(made)}; export the model again"
            )


def bind_shapes(model: ModelProto, shapes: dict[str, Sequence[int]]) -> ModelProto:
    """Return a copy whose inputs have exactly these shapes, with every other shape inferred anew.

    Raises:
        ModelError: the model cannot have these shapes.
    """
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
    """Forget what follows from the inputs of the outputs' shapes: a stale size or symbol would contradict them."""
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
    """Forget the element types of a model's outputs, which hide what is inferred; return them."""
    declared = [info.type.tensor_type.elem_type for info in model.graph.output]
    known = {info.name for info in (*graph_inputs(model), *model.graph.initializer)}
    for info, kind in zip(model.graph.output, declared, strict=True):
        if kind and info.name not in known:
            info.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    return declared


def _typed(model: ModelProto, declared: Sequence[int]) -> ModelProto:
    """Give the outputs their element types back; another one that was inferred is an error, as in ONNX Runtime.

    What is stored in float16 is cast to the type of its output, whatever it was.
    """
    for info, kind in zip(model.graph.output, declared, strict=True):
        found = info.type.tensor_type.elem_type
        if kind and found not in (kind, onnx.TensorProto.UNDEFINED):
            have, want = (onnx.TensorProto.DataType.Name(one).lower() for one in (found, kind))
            raise ModelError(f"output {info.name!r} is declared as {want}, but computed as {have}; export it again")
        if kind:
            info.type.tensor_type.elem_type = kind
    return model


def _fill_outputs(model: ModelProto) -> ModelProto:
    """Give an output listed twice the shape inferred for one of them."""
    known = {info.name: info for info in model.graph.output if None not in dims(info)}
    for info in model.graph.output:
        if info.name in known and None in dims(info):
            info.type.CopyFrom(known[info.name].type)
    return model


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node with what a cost model or a report needs: shapes and bytes of everything it reads and writes."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int | None, ...]]
    bytes: dict[str, int | None]


def view(model: ModelProto) -> list[NodeView]:
    """Return the main graph's nodes in order with inferred shapes and sizes in bytes (``None`` where not known)."""
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
    count = 1
    for d in shape:
        count *= d or 0
    return count * int(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize)
