"""Transformations of an exported graph before it is written: static shapes, simplification, float16."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine import Array, ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

_log = logging.getLogger(__name__)

_FLOAT, _HALF, _DOUBLE = 1, 10, 11
"""``onnx.TensorProto.FLOAT``, ``FLOAT16`` and ``DOUBLE``."""

KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Operator domains ONNX Runtime's CPU build has kernels for."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error message (and the next if it ends with a colon), or the type if it is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def with_sizes(model: ModelProto, inputs: Sequence[Array]) -> ModelProto:
    """Return a copy with the named dimensions replaced by the sizes of these inputs, one array per graph input."""
    from engine.onnx import copy_model

    copy = copy_model(model)
    sizes: dict[str, int] = {}
    for value, array in zip(copy.graph.input, inputs, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            if dim.dim_param:
                sizes[dim.dim_param] = size
    for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
            elif dim.dim_param:
                dim.Clear()  # computed from others: shape inference fills it in
    return copy


def simplify(model: ModelProto) -> ModelProto:
    """Return the model simplified by onnxsim (constants folded, batch norms fused, shapes inferred).

    Batch norms are not fused, with a warning in the log, if fusing would make weights vanish in float16. Raises
    ModelError if onnxsim, or its check of the result, fails.
    """
    import onnxsim

    from engine.onnx import fusion_loss_message

    try:
        simplified, passed = onnxsim.simplify(model)
        if harm := fusion_loss_message(model.graph, simplified.graph):
            _log.warning("batch norms are not fused: %s", harm)
            simplified, passed = onnxsim.simplify(model, skip_fuse_bn=True)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"onnxsim cannot simplify the exported model: {first_line(error)}") from error
    if not passed:
        raise ModelError("onnxsim changed what the exported model computes; report the model and the onnxsim version")
    return _with_modules(_with_symbols(_stripped(simplified), model), model)


def _with_symbols(simplified: ModelProto, exported: ModelProto) -> ModelProto:
    """Restore the names of the inputs' dynamic dimensions that onnxsim renamed."""
    named = {value.name: value.type.tensor_type.shape.dim for value in exported.graph.input}
    back = {
        new.dim_param: old.dim_param
        for value in simplified.graph.input
        for new, old in zip(value.type.tensor_type.shape.dim, named.get(value.name, ()), strict=False)
        if new.dim_param and old.dim_param
    }
    for value in (*simplified.graph.input, *simplified.graph.output, *simplified.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in back:
                dim.dim_param = back[dim.dim_param]
    return simplified


_MODULES = "pkg.torch.onnx.name_scopes"
"""Metadata key of PyTorch's exporter for the modules that a node comes from."""


def _with_modules(simplified: ModelProto, exported: ModelProto) -> ModelProto:
    """Copy the source module of every node that simplification kept; the tools report nodes by it."""
    notes = {
        (node.op_type, node.output[0]): note.value
        for node in exported.graph.node
        for note in node.metadata_props
        if note.key == _MODULES
    }
    for node in simplified.graph.node:
        if (node.op_type, node.output[0]) in notes:
            node.metadata_props.add(key=_MODULES, value=notes[node.op_type, node.output[0]])
    return simplified


def _stripped(model: ModelProto) -> ModelProto:
    """Remove metadata about the exporting machine (source paths, stack traces) in place."""
    del model.metadata_props[:]
    for part in (model.graph, *model.functions):
        del part.metadata_props[:]
        part.doc_string = ""
        for item in (*part.node, *part.value_info, *getattr(part, "input", ()), *getattr(part, "output", ())):
            if not isinstance(item, str):  # a function's inputs and outputs are bare names
                del item.metadata_props[:]
                item.doc_string = ""
    return model


def to_float16(model: ModelProto) -> ModelProto:
    """Return a copy with float16 weights, inputs and outputs; weights are clamped to the float16 range.

    Raises ModelError if inputs and outputs are float16 already, or float64, or the conversion fails.
    """
    from engine.onnx import to_float16 as converted

    kinds = {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
    if _HALF in kinds and _FLOAT not in kinds:
        raise ModelError("cannot convert the model to float16: it is float16 already; use float16=False")
    if _DOUBLE in kinds:
        fix = "use float32, or use float16=False"
        raise ModelError(f"cannot convert the model to float16: its inputs or outputs are float64; {fix}")
    with warnings.catch_warnings():
        # One warning per weight that underflows or is clamped; the comparison with the source model covers them.
        warnings.filterwarnings("ignore", message="the float32 number .* will be truncated", category=UserWarning)
        try:
            return converted(model, clamp=True)
        except ModelError as error:
            raise ModelError(f"{error}; use float16=False") from error


def foreign_ops(model: ModelProto) -> tuple[str, ...]:
    """Return the operators (``domain::Name``) defined neither by ONNX Runtime nor by a function in the model."""
    defined = {(function.domain, function.name) for function in model.functions}
    used = {(node.domain, node.op_type) for part in (model.graph, *model.functions) for node in part.node}
    return tuple(sorted(f"{domain}::{name}" for domain, name in used - defined if domain not in KNOWN_DOMAINS))
