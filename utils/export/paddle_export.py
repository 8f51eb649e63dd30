"""PaddlePaddle to ONNX by paddle2onnx: the same files and checks as for PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import paddle2onnx

from engine import Array, ModelError
from utils.export.onnx_files import (
    TOLERANCES,
    ExportResult,
    ModelNotes,
    dynamic_axes,
    dynamic_inputs,
    first_line,
    simplify,
)
from utils.export.steps import Framework, source_outputs, told, write_exported

if TYPE_CHECKING:
    from onnx import ModelProto


def export_paddle_onnx(
    model: paddle.nn.Layer,
    example_inputs: Array | Sequence[Array],
    stem: str | Path,
    *,
    input_names: Sequence[str] = ("input",),
    output_names: Sequence[str] = ("output",),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    opset: int = 13,
    labels: Sequence[str] | None = None,
    preprocess: Mapping[str, Any] | None = None,
    provenance: Mapping[str, str] | None = None,
    vocabulary: Sequence[str] | None = None,
    sample_rate: int | None = None,
    notes: Mapping[str, Any] | None = None,
    float16: bool = True,
    tolerances: Mapping[str, float] = TOLERANCES,
) -> list[ExportResult]:
    """Write ``<stem>.onnx`` (static), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``.

    Arguments, result and errors are those of :func:`utils.export.torch_export.export_onnx`; the example inputs are
    numpy arrays, from which the ``InputSpec`` of each input follows.
    """
    arrays = [example_inputs] if isinstance(example_inputs, np.ndarray) else list(example_inputs)
    axes = dynamic_axes(arrays, input_names, output_names, dynamic)
    made = told(model, provenance, opset, paddle=paddle.__version__, paddle2onnx=paddle2onnx.__version__)
    stored = ModelNotes(labels, preprocess, made, vocabulary, sample_rate, notes or {})
    names = (input_names, output_names)
    tried = dynamic_inputs(arrays, axes)
    framework = Framework(partial(_run, model), partial(_traced, model, arrays, axes, names, opset))
    return write_exported(model, framework, Path(stem), tried, axes, stored, float16, tolerances)


def _traced(
    model: paddle.nn.Layer,
    arrays: Sequence[Array],
    axes: Sequence[Mapping[int, str]],
    names: tuple[Sequence[str], Sequence[str]],
    opset: int,
) -> tuple[ModelProto, ModelProto]:
    """Return the static and the dynamic graph."""
    static = _to_onnx(model, arrays, [{} for _ in axes], names, opset)
    return static, _to_onnx(model, arrays, axes, names, opset)


_EXPORT_ERRORS = (
    paddle.base.core.EnforceNotMet,
    RuntimeError,
    ValueError,
    TypeError,
    NameError,  # paddle2onnx.export logs what went wrong, then trips over its missing result
)


def _reason(error: BaseException) -> str:
    """Return the line that names the cause; paddle puts the traced source code before it."""
    named = (line.strip() for line in str(error).splitlines() if "Error: " in line or "EnforceNotMet: " in line)
    return next(named, first_line(error))


def _run(model: paddle.nn.Layer, inputs: Sequence[Array]) -> list[Array]:
    """Return the source model's outputs on these arrays."""
    with paddle.no_grad():
        return source_outputs(
            lambda: model(*(paddle.to_tensor(x) for x in inputs)),
            inputs,
            paddle.Tensor,
            (*_EXPORT_ERRORS, IndexError),
            _reason,
        )


def _to_onnx(
    model: paddle.nn.Layer,
    inputs: Sequence[Array],
    axes: Sequence[Mapping[int, str]],
    names: tuple[Sequence[str], Sequence[str]],
    opset: int,
) -> ModelProto:
    """Return paddle2onnx's graph, simplified, with our names for inputs, outputs and dynamic axes."""
    import onnx

    specs = [
        paddle.static.InputSpec(
            shape=[-1 if axis in named else size for axis, size in enumerate(x.shape)], dtype=str(x.dtype), name=name
        )
        for x, named, name in zip(inputs, axes, names[0], strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "model")
        try:
            paddle.jit.save(model, str(program), specs)
            # `paddle.onnx.export` only logs its errors, and lets polygraphy install packages while it folds constants.
            data = paddle2onnx.export(
                f"{program}.json", f"{program}.pdiparams", opset_version=opset, optimize_tool="none"
            )
        except _EXPORT_ERRORS as error:
            raise ModelError(f"paddle2onnx cannot export {type(model).__name__}: {_reason(error)}") from error
    return simplify(_renamed(onnx.load_model_from_string(data), axes, names))


def _renamed(
    model: ModelProto, axes: Sequence[Mapping[int, str]], names: tuple[Sequence[str], Sequence[str]]
) -> ModelProto:
    import onnx_ir as ir

    graph = (found := ir.from_proto(model)).graph
    for values, wanted in zip((graph.inputs, graph.outputs), names, strict=True):
        if len(values) != len(wanted):
            raise ModelError(f"the model has {len(values)} inputs or outputs, the names given are {list(wanted)}")
        for value, name in zip(values, wanted, strict=True):
            value.name = name
    renamed: ModelProto = ir.to_proto(found)
    sizes: dict[str, str] = {}
    for value, named in zip(renamed.graph.input, axes, strict=True):
        sizes |= {value.type.tensor_type.shape.dim[axis].dim_param: name for axis, name in named.items()}
    for value in (*renamed.graph.input, *renamed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_param = sizes[dim.dim_param]
    return renamed
