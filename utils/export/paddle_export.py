"""Export of PaddlePaddle models to ONNX by paddle2onnx, with the same files and checks as for PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import paddle2onnx

from engine import ConfigError, ModelError
from utils.export.agree import TOLERANCES
from utils.export.forms import FORMS, chosen_forms
from utils.export.graphs import first_line, simplify
from utils.export.names import give_names
from utils.export.nested import outputs
from utils.export.onnx_files import ExportResult, ModelNotes, Traced
from utils.export.steps import Framework, Plan, Wanted, full_provenance, write_exported

if TYPE_CHECKING:
    from onnx import ModelProto

EXPORTER = "paddle2onnx"

OPSET = 13
"""Default ONNX operator set."""


def export_paddle_onnx(
    model: paddle.nn.Layer,
    example_inputs: Any,
    stem: str | Path,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    opset: int | None = None,
    labels: Sequence[str] | None = None,
    preprocess: Mapping[str, Any] | None = None,
    provenance: Mapping[str, str] | None = None,
    vocabulary: Sequence[str] | None = None,
    sample_rate: int | None = None,
    notes: Mapping[str, Any] | None = None,
    forms: Sequence[str] = FORMS,
    float16: bool = True,
    tolerances: Mapping[str, float] = TOLERANCES,
    custom_translation_table: None = None,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write ``<stem>.onnx`` (static), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``.

    Arguments, result and errors are those of :func:`utils.export.torch_export.export_onnx`, except: the default
    operator set is 13; the only exporter is ``paddle2onnx``; ``custom_translation_table`` is not supported; a model
    with other inputs or outputs than distinct tensors must not have branches that depend on values.
    """
    if exporter not in (None, EXPORTER):
        raise ConfigError(f"unknown exporter {exporter!r}; use {EXPORTER!r} for a PaddlePaddle model")
    if custom_translation_table:
        raise ConfigError(f"custom_translation_table is not supported by {EXPORTER}; leave it out")
    opset = opset or OPSET
    made = full_provenance(model, provenance, opset, paddle=paddle.__version__, paddle2onnx=paddle2onnx.__version__)
    stored = ModelNotes(labels, preprocess, made, vocabulary, sample_rate, notes or {})
    framework = Framework(
        kind=paddle.nn.Layer,
        tensor=paddle.Tensor,
        kinds=(paddle.Tensor, np.ndarray),
        parts=lambda layer: layer.sublayers(include_self=True),
        to_array=lambda tensor: tensor if isinstance(tensor, np.ndarray) else tensor.numpy(),
        to_tensor=paddle.to_tensor,
        no_grad=paddle.no_grad,
        trace=partial(_traced, model, opset),
        reason=_reason,
    )
    wanted = Wanted(input_names, output_names, dynamic, stored, chosen_forms(forms, float16), tolerances)
    return write_exported(model, framework, example_inputs, Path(stem), wanted)


class _Flat(paddle.nn.Layer):  # type: ignore[misc]
    """A model that takes one list of tensors and returns a tuple of tensors."""

    def __init__(self, model: paddle.nn.Layer, plan: Plan) -> None:
        super().__init__()
        self.model = model
        self.plan = plan

    @paddle.jit.not_to_static  # type: ignore[untyped-decorator]
    def call(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Compute; dynamic, as paddle cannot convert this method. Outputs are copied, as paddle loses others."""
        found = self.plan.example.call(self.model, tensors)
        return tuple(paddle.assign(one) for _, one in outputs(found, (paddle.Tensor, paddle.pir.Value)))

    def forward(self, tensors: Sequence[Any]) -> Any:
        """Compute."""
        return self.call(tensors)


def _traced(model: paddle.nn.Layer, opset: int, plan: Plan) -> Traced:
    """Return the static and the dynamic graph."""
    fixed: list[dict[int, str]] = [{} for _ in plan.axes]
    return plan.graphs(lambda: _to_onnx(model, opset, plan, fixed), lambda: _to_onnx(model, opset, plan, plan.axes))


_EXPORT_ERRORS = (
    paddle.base.core.EnforceNotMet,
    RuntimeError,
    ValueError,
    TypeError,
    NameError,  # paddle2onnx.export logs what went wrong, then trips over its missing result
)


def _reason(error: BaseException) -> str:
    """Return the line with the cause, which follows the traced source code in paddle's messages."""
    named = (line.strip() for line in str(error).splitlines() if "Error: " in line or "EnforceNotMet: " in line)
    return next(named, first_line(error))


def _to_onnx(model: paddle.nn.Layer, opset: int, plan: Plan, axes: Sequence[Mapping[int, str]]) -> ModelProto:
    """Return paddle2onnx's graph, simplified, with the wanted names of inputs, outputs and dynamic axes."""
    import onnx

    specs = [
        paddle.static.InputSpec(
            shape=[-1 if axis in named else size for axis, size in enumerate(x.shape)], dtype=str(x.dtype), name=name
        )
        for x, named, name in zip(plan.tried[0], axes, plan.example.names, strict=True)
    ]
    called = _Flat(model, plan) if plan.flat else model
    called.eval()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "model")
        try:
            paddle.jit.save(called, str(program), [specs] if plan.flat else specs)
            # `paddle.onnx.export` only logs errors, and polygraphy may install packages to fold constants.
            data = paddle2onnx.export(
                f"{program}.json", f"{program}.pdiparams", opset_version=opset, optimize_tool="none"
            )
        except _EXPORT_ERRORS as error:
            raise ModelError(f"paddle2onnx cannot export {type(model).__name__}: {_reason(error)}") from error
    return simplify(_renamed(onnx.load_model_from_string(data), axes, plan))


def _renamed(model: ModelProto, axes: Sequence[Mapping[int, str]], plan: Plan) -> ModelProto:
    import onnx_ir as ir

    found = ir.from_proto(model)
    give_names(found, plan.example.names, plan.names)
    renamed: ModelProto = ir.to_proto(found)
    sizes: dict[str, str] = {}
    for value, named in zip(renamed.graph.input, axes, strict=True):
        sizes |= {value.type.tensor_type.shape.dim[axis].dim_param: name for axis, name in named.items()}
    for value in (*renamed.graph.input, *renamed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_param = sizes[dim.dim_param]
    return renamed
