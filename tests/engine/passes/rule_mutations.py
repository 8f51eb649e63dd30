"""Mutations of a small model, after which a rewrite rule must be correct or not match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

Draw = Callable[..., Any]


def inner_values(model: onnx.ModelProto) -> list[str]:
    """Return the values that nodes compute and other nodes read."""
    outputs = {info.name for info in model.graph.output}
    return [name for one in model.graph.node for name in one.output if name and name not in outputs]


def add_output(model: onnx.ModelProto, name: str) -> None:
    model.graph.output.append(helper.make_empty_tensor_value_info(name))


def expose(model: onnx.ModelProto, draw: Draw) -> None:
    """Make an intermediate result an additional output."""
    if names := inner_values(model):
        add_output(model, draw(st.sampled_from(names)))


def read_elsewhere(model: onnx.ModelProto, draw: Draw) -> None:
    """Add a second reader of an intermediate result."""
    if names := inner_values(model):
        model.graph.node.append(helper.make_node("Identity", [draw(st.sampled_from(names))], ["copy"], "copy"))
        model.graph.node.append(helper.make_node("Neg", ["copy"], ["elsewhere"], "elsewhere"))
        add_output(model, "elsewhere")


def more_axes(model: onnx.ModelProto, draw: Draw) -> None:
    """Increase the rank of constants with one element, which may broadcast."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size == 1 and array.dtype.kind == "f" and draw(st.booleans()):
            shape = [1] * draw(st.integers(0, 5))
            tensor.CopyFrom(numpy_helper.from_array(array.reshape(shape), tensor.name))


def weight_is_output(model: onnx.ModelProto, draw: Draw) -> None:
    """Make a weight an output."""
    floats = [t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if floats:
        name = draw(st.sampled_from(floats))
        tensor = next(t for t in model.graph.initializer if t.name == name)
        model.graph.output.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))


def weight_is_shared(model: onnx.ModelProto, draw: Draw) -> None:
    """Add another reader of a weight."""
    floats = [t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if floats:
        name = draw(st.sampled_from(floats))
        model.graph.node.append(helper.make_node("Exp", [name], ["shared"], "shared"))
        add_output(model, "shared")


def weight_is_input(model: onnx.ModelProto, draw: Draw) -> None:
    """Turn a constant into an input without a default."""
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if floats:
        tensor = draw(st.sampled_from(floats))
        info = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        model.graph.initializer.remove(tensor)
        model.graph.input.append(info)


def other_constant(model: onnx.ModelProto, draw: Draw) -> None:
    """Change the value of a constant with one element."""
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and not t.dims]
    if floats:
        tensor = draw(st.sampled_from(floats))
        value = np.array(draw(st.sampled_from([0.0, 0.25, 1.0, 3.0])), np.float32)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def around(model: onnx.ModelProto, draw: Draw) -> None:
    """Add an operator before the graph, and others after its outputs."""
    first = draw(st.sampled_from(["Relu", "Neg", "Sigmoid", "Abs"]))
    for one in model.graph.node:
        one.input[:] = ["x0" if name == "x" else name for name in one.input]
    model.graph.node.insert(0, helper.make_node(first, ["x"], ["x0"], "before"))
    behind = draw(st.sampled_from(["Relu", "Tanh", "Transpose", "Flatten", "Mul"]))
    last = model.graph.output[0].name
    if last in {t.name for t in model.graph.initializer}:
        return
    inputs = [last, last] if behind == "Mul" else [last]
    model.graph.node.append(helper.make_node(behind, inputs, ["behind"], "behind"))
    add_output(model, "behind")


def names_taken(model: onnx.ModelProto, draw: Draw) -> None:
    """Give a value a name that rules generate."""
    for i, suffix in enumerate(("_channels", "_gather", "_reordered_weight", "_folded_bias")):
        name = f"{draw(st.sampled_from(['y', 'p', 'q', 'c', 'z']))}{suffix}"
        if name in {out for one in model.graph.node for out in one.output}:
            continue
        model.graph.node.append(helper.make_node("Exp", ["x"], [name], f"taken{i}"))
        add_output(model, name)


def unnamed(model: onnx.ModelProto, draw: Draw) -> None:
    """Remove the names of nodes."""
    for one in model.graph.node:
        one.name = ""


MUTATIONS = (
    *(expose, read_elsewhere, more_axes, weight_is_output, weight_is_shared, weight_is_input, other_constant),
    *(around, names_taken, unnamed),
)


def mutated(model: onnx.ModelProto, draw: Draw) -> onnx.ModelProto | None:
    """Return a copy with one to three mutations; ``None`` if the result is invalid."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for change in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3, unique=True)):
        change(changed, draw)
    del changed.graph.value_info[:]
    for info in changed.graph.output:
        if info.name not in {t.name for t in changed.graph.initializer}:
            info.CopyFrom(helper.make_empty_tensor_value_info(info.name))
    names = [info.name for info in changed.graph.output]
    if len(set(names)) != len(names):
        return None
    try:
        changed = onnx.shape_inference.infer_shapes(changed, strict_mode=True)
        onnx.checker.check_model(changed)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return None
    return changed
