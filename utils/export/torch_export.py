"""Export of PyTorch models to ONNX: a static, a dynamic and a float16 file, compared with the source model."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine import Array, ConfigError, ModelError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.agree import TOLERANCES
from utils.export.forms import EXPORTERS, FORMS, chosen_forms
from utils.export.graphs import simplify, with_sizes
from utils.export.names import give_names
from utils.export.nested import outputs
from utils.export.onnx_files import ExportResult, ModelNotes, Traced
from utils.export.steps import Framework, Plan, Wanted, full_provenance, write_exported
from utils.export.torch_operators import quiet, tracing_reason
from utils.export.weight_files import load_weights as load_weights

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx import ModelProto

Translations = Mapping[Callable[..., Any], Callable[..., Any]]
"""onnxscript functions by PyTorch operator (``torch.ops.custom.add.default``)."""

OPSET = 18
"""Default ONNX operator set."""


def export_onnx(
    model: torch.nn.Module,
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
    custom_translation_table: Translations | None = None,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write ``<stem>.onnx`` (static), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``.

    The static file has the shapes of ``example_inputs``. Each file is simplified, checked, run on ONNX Runtime and
    compared with ``model``; the dynamic ones also on another batch size and with every other dynamic axis doubled.

    Args:
        model: the source; it is exported in eval mode.
        example_inputs: a tensor or numpy array; a sequence, one item per argument of ``forward``; or a mapping by
            argument. Items may be nested (lists, tuples, mappings); other values are constants.
        stem: path and start of the file names.
        input_names: one per tensor; ``None`` for ``input``, or the names of the arguments if there are several.
        output_names: one per tensor; ``None`` for ``output``, or the keys and fields of what the model returns.
        dynamic: per input name, its dynamic axes and their names; ``None`` makes axis 0 of every input ``batch``. Axes
            with the same name have the same size.
        opset: version of the ONNX operator set; ``None`` for 18. tolerances: maximum relative error by dtype.
        labels, preprocess, provenance, vocabulary, sample_rate, notes: stored in the files, with the versions of
            torch and the opset; see :class:`~utils.export.onnx_files.ModelNotes`.
        forms: the files to write, of ``static``, ``dyn`` and ``float16_dyn``. float16: ``False`` leaves the last out.
        custom_translation_table: translations of operators unknown to the exporter (``dynamo`` only). A file with an
            operator that ONNX Runtime lacks is checked but not run.
        exporter: ``dynamo`` (``None``) or ``torchscript``. The latter traces one run and keeps its value-dependent
            branches, with a warning.

    Returns:
        One result per file, in the order above.

    Raises:
        ConfigError: invalid name, axis, note, form or exporter.
        ExportError: a form failed its check or exceeds its tolerance; the others were written (``results``).
        ModelError: the model cannot be run or exported; no file is replaced.
    """
    trace = _exporter(exporter, custom_translation_table)
    opset = opset or OPSET
    made = full_provenance(model, provenance, opset, torch=torch.__version__)
    stored = ModelNotes(labels, preprocess, made, vocabulary, sample_rate, notes or {})
    wanted = Wanted(input_names, output_names, dynamic, stored, chosen_forms(forms, float16), tolerances)
    framework = Framework(
        kind=torch.nn.Module,
        tensor=torch.Tensor,
        kinds=(torch.Tensor, np.ndarray),
        parts=torch.nn.Module.modules,
        to_array=_array,
        to_tensor=partial(_tensor, model),
        no_grad=torch.no_grad,
        trace=partial(trace, model, opset),
        reason=tracing_reason,
    )
    return write_exported(model, framework, example_inputs, Path(stem), wanted)


def _exporter(name: str | None, table: Translations | None) -> Callable[..., Traced]:
    """Return the function that traces a model."""
    if name is not None and name not in EXPORTERS:
        raise ConfigError(f"unknown exporter {name!r};{did_you_mean(name, EXPORTERS)} use {' or '.join(EXPORTERS)}")
    if name == "torchscript":
        if table:
            raise ConfigError("custom_translation_table requires exporter='dynamo'; leave one of them out")
        return _by_torchscript
    return partial(_by_dynamo, dict(table or {}) or None)


def _array(tensor: Any) -> Array:
    found: Array = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy()
    return found


def _tensor(model: torch.nn.Module, array: Array) -> torch.Tensor:
    """Return an array as a tensor on the device of the model's weights."""
    weight = next(model.parameters(), None)
    made = torch.from_numpy(array.copy())
    return made if weight is None else made.to(weight.device)


@contextmanager
def _flat(model: torch.nn.Module, plan: Plan) -> Iterator[None]:
    """Make a model take one tensor per argument and return a tuple of tensors within the context."""
    if not plan.flat:
        yield
        return
    kind, own = type(model), vars(model).get("forward")

    class Flat(kind):  # type: ignore[misc, valid-type]
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            called = own or partial(kind.forward, self)
            return tuple(one for _, one in outputs(plan.example.call(called, tensors), (torch.Tensor,)))

    # The class is replaced instead of wrapping the model, so that modules and weights keep their names.
    Flat.__name__ = kind.__name__
    vars(model).pop("forward", None)
    model.__class__ = Flat
    try:
        yield
    finally:
        model.__class__ = kind
        if own is not None:
            model.forward = own


def _by_dynamo(table: dict[Any, Any] | None, model: torch.nn.Module, opset: int, plan: Plan) -> Traced:
    """Return the static and the dynamic graph, from a single trace, as tracing is slow."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("torch.export cannot read a TorchScript model; try exporter='torchscript'")
    # torch.export treats sizes 0 and 1 as constants, so the model is traced on the larger batch.
    arrays = plan.tried[min(1, len(plan.tried) - 1)]
    tensors = tuple(_tensor(model, x) for x in arrays)
    shapes: Any = tuple(dict(named) for named in plan.axes)
    with _flat(model, plan), quiet():
        try:
            program = torch.onnx.export(
                model,
                tensors,
                dynamo=True,
                verbose=False,
                dynamic_shapes=(shapes,) if plan.flat else shapes,
                input_names=plan.example.names,
                opset_version=opset,
                custom_translation_table=table,
            )
        except torch.onnx.OnnxExporterError as error:
            raise _export_error(model, error.__cause__ or error, "dynamo", plan) from error
    exported = _named(program.model, plan)
    return plan.graphs(lambda: simplify(with_sizes(exported, plan.tried[0])), lambda: simplify(exported))


def _named(model: ir.Model, plan: Plan) -> ModelProto:
    import onnx_ir as ir

    give_names(model, plan.example.names, plan.names)
    proto: ModelProto = ir.to_proto(model)
    return proto


def _export_error(model: torch.nn.Module, error: BaseException, exporter: str, plan: Plan) -> ModelError:
    """Return the error of an exporter, with a hint at the other one, unless that would only hide a branch."""
    reason = re.sub(r"inputs\['tensors'\]\[(\d+)\]", lambda n: plan.example.names[int(n[1])], tracing_reason(error))
    fix = "; leave the axis out of dynamic" if "static shape" in reason else ""
    if "depends on values" not in reason:
        [other] = set(EXPORTERS) - {exporter}
        fix += f"{', or' if fix else ';'} try exporter={other!r}"
    return ModelError(f"torch.onnx cannot export {type(model).__name__}: {reason.rstrip('.')}{fix}")


def _by_torchscript(model: torch.nn.Module, opset: int, plan: Plan) -> Traced:
    """Return the static and the dynamic graph from separate traces, as a trace may fix sizes."""
    with _constant_warning():
        return plan.graphs(
            lambda: simplify(_scripted(model, opset, plan, [{} for _ in plan.axes])),
            lambda: simplify(_scripted(model, opset, plan, plan.axes)),
        )


def _scripted(model: torch.nn.Module, opset: int, plan: Plan, axes: Sequence[Mapping[int, str]]) -> ModelProto:
    import onnx
    import onnx_ir as ir

    tensors = tuple(_tensor(model, x) for x in plan.tried[0])
    with tempfile.TemporaryDirectory() as folder, _flat(model, plan), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the exporter's own use of torch
        warnings.simplefilter("ignore", DeprecationWarning)
        path = Path(folder, "model.onnx")
        try:
            torch.onnx.export(
                model,
                tensors,
                path,
                dynamo=False,
                verbose=False,
                input_names=plan.example.names,
                dynamic_axes={name: dict(named) for name, named in zip(plan.example.names, axes, strict=True)},
                opset_version=opset,
            )
        except Exception as error:  # the tracer raises any error of the module or of torch
            raise _export_error(model, error, "torchscript", plan) from error
        return _named(ir.from_proto(_with_all_inputs(onnx.load(path), plan, axes)), plan)


def _with_all_inputs(model: ModelProto, plan: Plan, axes: Sequence[Mapping[int, str]]) -> ModelProto:
    """Restore unused inputs, which the tracer drops."""
    from onnx import helper

    kept = {value.name: value for value in model.graph.input}
    infos = []
    for name, array, named in zip(plan.example.names, plan.tried[0], axes, strict=True):
        sizes = [named.get(axis, size) for axis, size in enumerate(array.shape)]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        infos.append(kept.get(name) or helper.make_tensor_value_info(name, kind, sizes))
    del model.graph.input[:]
    model.graph.input.extend(infos)
    return model


@contextmanager
def _constant_warning() -> Iterator[None]:
    """Combine the tracer's warnings about values that became constants into one."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    own = Path(torch.__file__).parent  # torch's own lines ask for shapes
    lines = [one for one in seen if issubclass(one.category, torch.jit.TracerWarning)]
    foreign = [one for one in lines if own not in Path(one.filename).parents]
    places = sorted({f"{Path(one.filename).name}:{one.lineno}" for one in foreign})
    if places:
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        warnings.warn(
            f"the trace has values of the example as constants ({', '.join(places[:3])}{more}); use exporter='dynamo' "
            "to check whether they are more than shapes",
            stacklevel=4,
        )
