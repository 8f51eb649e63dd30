"""Conversion to plain float16 models; the card's mixed float16 computation is in :mod:`engine.sdaa.float16`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from engine.onnx.half_ends import (
    has_bodies,
    is_cast,
    join_outputs,
    keep_input,
    keep_output,
    split_outputs,
    widen_captured,
)
from engine.onnx.half_range import constant_tensors, drop_unread, fit_batch_norms, unfit, vanishing, worst_of
from engine.onnx.large import copy_model, copy_tensor
from engine.onnx.shapes import check_types, infer_shapes
from engine.onnx.view import graph_inputs, rename_inputs, replace_items, sort_nodes, used_names
from engine.onnx.whole_numbers import Exact, exact_parts
from engine.onnx.widen import widen
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

_log = logging.getLogger(__name__)
_HALF = TensorProto.FLOAT16
_SMALLEST, _LARGEST = float(np.finfo(np.float16).smallest_subnormal), float(np.finfo(np.float16).max)


def to_float16(
    model: ModelProto,
    keep: Callable[[NodeProto], bool] | None = None,
    keep_inputs: Iterable[str] = (),
    clamp: bool = False,
) -> ModelProto:
    """Return a plain float16 copy of a float32 model: float16 weights, activations, inputs and outputs.

    These parts stay float32: computations with integers and coordinates, and inputs and outputs that hold such numbers
    (:mod:`engine.onnx.whole_numbers`); scaling by a constant beyond float16's range; bodies of If, Loop and Scan. Batch
    norm parameters beyond float16's range are replaced by equivalent ones. A warning reports weights that vanish if
    subnormals are flushed.

    Args:
        model: the model; float16 parts are kept, and a model converted before is only copied.
        keep: selects nodes that stay float32 (with casts around them).
        keep_inputs: graph inputs that keep their dtype.
        clamp: clip weights beyond float16's range to its largest number, and vanishing ones to its smallest; else they
            become infinite, and zero.

    Raise ModelError if the conversion failed.
    """
    if keep is None and _is_half(model):
        return copy_model(model)
    if keep is not None and any(tensor.data_type == _HALF for tensor in model.graph.initializer):
        model = widen(model)  # a float16 node cannot be kept in float32
    if lost := vanishing(model.graph):
        _log.warning("%s, which are 0 on devices that flush subnormals; do not fuse its batch norm", worst_of(lost))
    converted, exact = _converted(model, keep, clamp)
    half = {info.name for info in (*converted.graph.value_info, *converted.graph.output) if _kind(info) == _HALF}
    for node in converted.graph.node:
        if half.intersection(node.output):
            _write_half(node)
    _join_float32(converted.graph)
    # The library can only keep all inputs and outputs, not individual ones.
    was = {info.name: _kind(info) for info in (*graph_inputs(model), *model.graph.output)}
    fed = {info.name: info for info in graph_inputs(converted) if _kind(info) != was[info.name]}
    for name in sorted(fed.keys() & {*keep_inputs, *exact.inputs}):
        keep_input(converted.graph, fed[name])
    for info in converted.graph.output:
        if info.name in exact.outputs and info.name not in fed and _kind(info) != was[info.name]:
            keep_output(converted.graph, info)
    widen_captured(converted.graph)
    return sort_nodes(converted)


def to_float32(model: ModelProto) -> ModelProto:
    """Return a copy with every float16 tensor, weight, input and output in float32, and the same values.

    Casts to float16 inside still round. ``model``: any ONNX model, such as a float16 export.
    """
    return widen(model)


def _converted(model: ModelProto, keep: Callable[[NodeProto], bool] | None, clamp: bool) -> tuple[ModelProto, Exact]:
    """Return the model converted by the library, except nodes to keep and unsupported ones, and its exact parts."""
    from onnxconverter_common import float16

    # The library's defaults replace tiny and huge weights by arbitrary limits.
    smallest, largest = (_SMALLEST, _LARGEST) if clamp else (0.0, np.inf)
    check_types(model)
    try:
        inferred = infer_shapes(model)  # the library's own inference fails beyond 2 GiB
        _join_rounding(inferred.graph)
        exact = exact_parts(inferred.graph)
        blocked = _blocked(inferred, exact, keep, clamp)
        ends = split_outputs(inferred.graph)
        with np.errstate(over="ignore"):
            converted: ModelProto = float16.convert_float_to_float16(
                inferred,
                min_positive_val=smallest,
                max_finite_val=largest,
                node_block_list=blocked,
                check_fp16_ready=False,
                disable_shape_infer=True,
            )
    except EncodeError as error:
        raise ModelError("the model cannot be converted to float16: its weights are more than 2 GB") from error
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"the model cannot be converted to float16: {one_line(error)}") from error
    join_outputs(converted.graph, ends)
    return converted, exact


def _join_rounding(graph: onnx.GraphProto) -> None:
    """Replace casts of real numbers to float32 by Identity nodes, which read what the file rounds to float16 before.

    The values become float16 anyway. The library removes pairs of such casts too, but fails at those of graph inputs
    and outputs, and at those with several readers (AttributeError).
    """
    kinds = {info.name: _kind(info) for info in (*graph.input, *graph.value_info)}
    real = (TensorProto.FLOAT, _HALF)
    casts = [node for node in graph.node if node.op_type == "Cast" and kinds.get(node.input[0]) in real]
    rounded = {node.output[0]: node.input[0] for node in casts if node.attribute[0].i == _HALF}
    for node in casts:
        if node.attribute[0].i == TensorProto.FLOAT:
            node.input[0], node.op_type = rounded.get(node.input[0], node.input[0]), "Identity"
            del node.attribute[:]
    read = {name for node in graph.node for name in used_names(node)} | {info.name for info in graph.output}
    replace_items(graph.node, [n for n in graph.node if n.output[0] in read or n.output[0] not in rounded])


def _blocked(model: ModelProto, exact: Exact, keep: Callable[[NodeProto], bool] | None, clamp: bool) -> list[str]:
    """Name all nodes, copy the weights of float32 nodes, and return the names of the nodes to keep, in place."""
    from onnxconverter_common import float16

    blocked = []
    _name_nodes(model.graph)
    left = fit_batch_norms(model.graph, keep or (lambda node: False))
    constants = constant_tensors(model.graph)
    for node in list(model.graph.node):
        kept = has_bodies(node) or (keep is not None and keep(node))
        kept = kept or not exact.written.isdisjoint(node.output) or not left.isdisjoint(node.output)
        scales = node.op_type in ("Mul", "Div") and not exact.divisors.isdisjoint(node.input)
        if kept or scales or unfit(node, constants, clamp):
            blocked.append(node.name)
        if node.name in blocked or node.op_type in float16.DEFAULT_OP_BLOCK_LIST:
            _own_constants(model.graph, node, constants)
    drop_unread(model.graph, constants)
    return blocked


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a name of its own from which the library can form names of casts.

    It calls them ``NAME_input_cast_0`` and so on without a look at what is there: a file that it has converted before
    holds such names.
    """
    taken = {node.name for node in graph.node} | {name for node in graph.node for name in (*node.input, *node.output)}
    casts = {name[: name.rindex(mark)] for name in taken for mark in ("_input_cast", "_output_cast") if mark in name}
    used = set(casts)
    for i, node in enumerate(graph.node):
        stem = name = node.name or f"{node.op_type}_{i}"
        number = 0
        while name in used:
            number += 1
            name = f"{stem}_{number}"
        node.name = name
        used.add(name)


def _is_half(model: ModelProto) -> bool:
    """Return whether a model was converted before: no float32 inputs, outputs and weights, except exact numbers."""
    graph = model.graph
    wide = {info.name for info in (*graph.input, *graph.output) if _kind(info) == TensorProto.FLOAT}
    size = dict.fromkeys((_HALF, TensorProto.FLOAT), 0)
    for tensor in graph.initializer:
        if tensor.data_type in size:
            size[tensor.data_type] += math.prod(tensor.dims)
    if size[TensorProto.FLOAT] > _ISLANDS * size[_HALF] or (wide and not size[_HALF]):
        return False
    if not wide:
        return True
    exact = exact_parts(infer_shapes(model).graph)
    return wide <= exact.inputs | exact.outputs


_ISLANDS = 0.01  # maximum share of weights in nodes that stay float32


def _join_float32(graph: onnx.GraphProto) -> None:
    """Remove the library's rounding casts between nodes that stay float32."""
    narrow = {node.output[0]: node.input[0] for node in graph.node if is_cast(node, "_output_cast", _HALF)}
    wide = {
        node.output[0]: narrow[node.input[0]]
        for node in graph.node
        if is_cast(node, "_input_cast", TensorProto.FLOAT) and node.input[0] in narrow
    }
    if not wide:
        return
    for node in graph.node:
        rename_inputs(node, wide)
    casts = wide.keys() | narrow.keys()
    read = {name for node in graph.node for name in used_names(node)} | {info.name for info in graph.output}
    replace_items(graph.node, [n for n in graph.node if n.output[0] in read or not casts & set(n.output)])


def _kind(info: ValueInfoProto) -> int:
    return int(info.type.tensor_type.elem_type)


def _own_constants(graph: onnx.GraphProto, node: NodeProto, constants: Mapping[str, TensorProto]) -> None:
    """Give a node that stays float32 its own copies of weights; the library cannot keep one weight in two types."""
    read = constants.keys() & set(node.input)  # a node may read a weight twice
    for name in sorted(read):
        copy_tensor(constants[name], graph.initializer.add(), f"{name}:{node.name}")
    for i, name in enumerate(node.input):
        node.input[i] = f"{name}:{node.name}" if name in read else name


def _write_half(node: NodeProto) -> None:
    """Change the declared output type of a node to float16, which the library omits."""
    for attribute in node.attribute:
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = onnx.numpy_helper.from_array(np.asarray(value, np.float16))
            attribute.CopyFrom(helper.make_attribute("value", tensor))
        elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = _HALF
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1, np.float16))))
