"""PyTorch to ONNX: a static, a dynamic and a float16 file, each compared with the source model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engine import Array, ModelError
from utils.export.onnx_files import (
    TOLERANCES,
    ExportResult,
    ModelNotes,
    dynamic_axes,
    dynamic_inputs,
    first_line,
    simplify,
    with_sizes,
)
from utils.export.steps import Framework, source_outputs, told, write_exported

if TYPE_CHECKING:
    from onnx import ModelProto

Translations = Mapping[Callable[..., Any], Callable[..., Any]]
"""Torch operator (``torch.ops.custom.add.default``) to the onnxscript function that writes its node."""


def export_onnx(
    model: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    stem: str | Path,
    *,
    input_names: Sequence[str] = ("input",),
    output_names: Sequence[str] = ("output",),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    opset: int = 18,
    labels: Sequence[str] | None = None,
    preprocess: Mapping[str, Any] | None = None,
    provenance: Mapping[str, str] | None = None,
    vocabulary: Sequence[str] | None = None,
    sample_rate: int | None = None,
    notes: Mapping[str, Any] | None = None,
    float16: bool = True,
    tolerances: Mapping[str, float] = TOLERANCES,
    custom_translation_table: Translations | None = None,
) -> list[ExportResult]:
    """Write ``<stem>.onnx`` (static), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``.

    The static file has the shapes of ``example_inputs``. Each file is simplified, checked, run on ONNX Runtime and
    compared with ``model``; the dynamic ones also on another batch size and with every other dynamic axis doubled.

    Args:
        model: the source; it is exported in eval mode.
        example_inputs: one tensor, or one per argument of the model's ``forward``.
        stem: path and start of the file names.
        input_names, output_names: one name each.
        dynamic: per input name, its dynamic axes and their names; ``None`` makes axis 0 of every input ``batch``.
        opset: version of the ONNX operator set.
        labels, preprocess, provenance, vocabulary, sample_rate, notes: stored in the files, beside the versions of
            torch and the opset; see :class:`~utils.export.onnx_files.ModelNotes`.
        float16: write the float16 file too.
        tolerances: largest relative error allowed, by dtype.
        custom_translation_table: how operators unknown to the exporter become nodes. A file with one that ONNX Runtime
            lacks is checked but not run, and its result says so.

    Returns:
        One result per file, in the order above.

    Raises:
        ConfigError: a name in ``dynamic`` is not an input, the number of names does not fit, or a note is not valid.
        ModelError: the model cannot be exported, a check failed, or a file differs too much; no file is replaced.
    """
    inputs = [example_inputs] if isinstance(example_inputs, torch.Tensor) else list(example_inputs)
    arrays = [x.detach().cpu().numpy() for x in inputs]
    axes = dynamic_axes(arrays, input_names, output_names, dynamic)
    made = told(model, provenance, opset, torch=torch.__version__)
    stored = ModelNotes(labels, preprocess, made, vocabulary, sample_rate, notes or {})
    tried = dynamic_inputs(arrays, axes)
    options = {"input_names": list(input_names), "output_names": list(output_names), "opset_version": opset}
    options["custom_translation_table"] = dict(custom_translation_table or {}) or None
    framework = Framework(partial(_run, model), partial(_traced, model, tried, axes, options))
    return write_exported(model, framework, Path(stem), tried, axes, stored, float16, tolerances)


def _traced(
    model: torch.nn.Module, tried: Sequence[list[Array]], axes: Sequence[Mapping[int, str]], options: dict[str, Any]
) -> tuple[ModelProto, ModelProto]:
    """Return the static and the dynamic graph; tracing takes the time, so one is the other with its sizes filled in."""
    # torch.export takes a size of 0 or 1 for a constant, so the model is traced on the larger batch.
    exported = _to_onnx(model, tried[min(1, len(tried) - 1)], axes, options)
    return simplify(with_sizes(exported, tried[0])), simplify(exported)


def load_weights(model: torch.nn.Module, path: str | Path) -> torch.nn.Module:
    """Load a ``.pth`` file holding a state dict into the model and return the model.

    Only tensors and plain containers are read (``weights_only=True``), so a file from elsewhere cannot run code.

    Raises:
        ModelError: the file is missing or damaged, is not a state dict, or its keys or shapes do not fit the model.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"weights file {path} does not exist; check the path") from error
    except Exception as error:  # damaged files make torch's unpickler raise anything
        raise ModelError(
            f"{path}: damaged, or holds more than tensors; save the weights as model.state_dict()"
        ) from error
    if not isinstance(state, Mapping):
        raise ModelError(f"{path}: holds a {type(state).__name__}, not a state dict; save model.state_dict()")
    _check_state(model, state, path)
    model.load_state_dict(state)
    return model


def _check_state(model: torch.nn.Module, state: Mapping[str, Any], path: str | Path) -> None:
    """Raise one line naming the first keys or shapes that do not fit."""
    own = model.state_dict()
    missing, extra = [k for k in own if k not in state], [k for k in state if k not in own]
    shaped = [k for k in own if k in state and getattr(state[k], "shape", None) != own[k].shape]
    found = [
        f"{what} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for what, keys in (("missing", missing), ("unknown", extra), ("of another shape", shaped))
        if keys
    ]
    if found:
        raise ModelError(f"{path} does not fit {type(model).__name__}: {'; '.join(found)}; use the matching model")


def _run(model: torch.nn.Module, inputs: Sequence[Array]) -> list[Array]:
    """Return the source model's outputs on these arrays."""
    with torch.no_grad():
        return source_outputs(
            lambda: model(*(torch.from_numpy(x) for x in inputs)),
            inputs,
            torch.Tensor,
            (RuntimeError, ValueError, IndexError),
        )


def _to_onnx(
    model: torch.nn.Module,
    inputs: Sequence[Array],
    axes: Sequence[Mapping[int, str]],
    options: dict[str, Any],
) -> ModelProto:
    """Return the graph of torch's own exporter (torch.export based)."""
    tensors = tuple(torch.from_numpy(x) for x in inputs)
    shapes = tuple(dict(named) for named in axes)
    with warnings.catch_warnings():
        # The exporter warns about its own use of torch's internals; nothing there is for the user to change.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "# The axis name: .* will not be used, since it shares", UserWarning)
        try:
            program = torch.onnx.export(model, tensors, dynamo=True, verbose=False, dynamic_shapes=shapes, **options)
        except torch.onnx.OnnxExporterError as error:
            reason = first_line(error.__cause__ or error)
            raise ModelError(f"torch.onnx cannot export {type(model).__name__}: {reason}") from error
    return program.model_proto  # type: ignore[no-any-return]
