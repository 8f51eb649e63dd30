"""Clean-up of third-party ONNX files: weights among the inputs, sizes of an example, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from engine import ModelError
from utils.export.graphs import first_line

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18
"""Operator set of the result."""

Named: TypeAlias = "tuple[str, Sequence[str | int]]"
"""New name, and sizes: a number, or the name of a dynamic dimension."""


def cleaned(model: ModelProto, inputs: Mapping[str, Named], outputs: Mapping[str, Named]) -> ModelProto:
    """Return a copy with only these inputs and outputs (by name: new name and sizes) at operator set 18.

    Inputs with an initializer, and inputs that no node reads, are dropped. Shapes inside are inferred again. Raises
    ModelError if an input or output is missing, another input is needed, or the sizes do not fit.
    """
    from onnx import checker, shape_inference, version_converter

    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    held = {weight.name for weight in graph.initializer}
    needed = {name for node in graph.node for name in node.input} - held
    others = [value.name for value in graph.input if value.name in needed and value.name not in inputs]
    if others:
        raise ModelError(f"the model needs the input {others[0]!r} too; give it a name and sizes")
    for values, wanted in ((graph.input, inputs), (graph.output, outputs)):
        kept = {value.name: value for value in values if value.name in wanted}
        missing = next((name for name in wanted if name not in kept), None)
        if missing is not None:
            there = ", ".join(value.name for value in values if value.name not in held)
            raise ModelError(f"the model has no {missing!r} among {there}; is it another release of the file?")
        del values[:]
        values.extend(kept[name] for name in wanted)
    _rename(copy, {name: new for name, (new, _) in {**inputs, **outputs}.items()})
    for value, (_, sizes) in zip((*graph.input, *graph.output), (*inputs.values(), *outputs.values()), strict=True):
        _resize(value, sizes)
    del graph.value_info[:]
    try:
        made = version_converter.convert_version(copy, OPSET)
        checker.check_model(made, full_check=True)
        return shape_inference.infer_shapes(made, strict_mode=True)
    except (RuntimeError, checker.ValidationError, shape_inference.InferenceError) as error:
        raise ModelError(f"the model cannot be rewritten: {first_line(error)}") from error


def _rename(model: ModelProto, names: Mapping[str, str]) -> None:
    """Rename values of the graph in place."""
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)} - set(names)
    twice = next((new for new in names.values() if new in taken), None)
    if twice is not None:
        raise ModelError(f"the model has a value named {twice!r} already; choose another name")
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for values in (node.input, node.output):
            for place, name in enumerate(values):
                values[place] = names.get(name, name)


def _resize(value: object, sizes: Sequence[str | int]) -> None:
    """Set the shape of an input or output in place."""
    shape = value.type.tensor_type.shape  # type: ignore[attr-defined]  # a ValueInfoProto
    del shape.dim[:]
    for size in sizes:
        dim = shape.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        else:
            dim.dim_value = size
