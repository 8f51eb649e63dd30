"""From an exported graph to checked files: what the PyTorch and the PaddlePaddle exporter share.

Every file is simplified, checked, run on the accuracy baseline (target ``onnx``) and compared with the source model
before it replaces an older one, so a file that exists is one that passed.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, EngineSpec, ModelError, open_engine
from utils.stored import LABELS, PREPROCESS, PROVENANCE, SAMPLE_RATE, VOCABULARY, Stored

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

_log = logging.getLogger(__name__)

FORMULA = "max|a - b| / max|b|"
"""The relative error: ``a`` is the file's output, ``b`` the source model's; the largest over all outputs counts."""

TOLERANCES = {"float32": 1e-3, "float16": 5e-2}
"""Largest relative error a file may have, per precision."""

MAX_PROTOBUF = 2**31 - 2**20
"""Weights above this many bytes go to ``<file>.data``: a protobuf ends at 2 GiB, and the graph itself needs room."""

_FLOAT, _HALF = 1, 10
"""``onnx.TensorProto.FLOAT`` and ``FLOAT16``."""

KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Operator domains ONNX Runtime's CPU build has kernels for."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One input the file is tried on, and what the source model answers."""

    inputs: list[Array]
    wanted: list[Array]


@dataclass(frozen=True, slots=True)
class Variant:
    """One file to write: ``<stem><suffix>.onnx``."""

    suffix: str
    model: ModelProto
    cases: list[Expected]
    dtype: str = "float32"


ERROR = "max_relative_error"
"""The key a file's own largest relative error is stored under."""


@dataclass(frozen=True, slots=True)
class ModelNotes:
    """What a file says about itself in its ``metadata_props``; :class:`utils.stored.Stored` reads it.

    All is stored as JSON, mappings with sorted keys. What the reader would refuse is refused here.

    Attributes:
        labels: class names in the order of the model's outputs (``class_labels``, a JSON list).
        preprocess: ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation`` (``preprocess``, a JSON
            object).
        provenance: source, weights, versions (``provenance``, a JSON object); no dates, so an export can be repeated.
        vocabulary: tokens in the order of their numbers (``vocabulary``, a JSON list).
        sample_rate: samples of audio per second (``sample_rate``).
        notes: what else the model's domain needs, by key: anything that JSON holds.

    Raises:
        ConfigError: a value cannot be stored, or a key of ``notes`` is empty or one of the others.
    """

    labels: Sequence[str] | None = None
    preprocess: Mapping[str, Any] | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    vocabulary: Sequence[str] | None = None
    sample_rate: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = (LABELS, PREPROCESS, PROVENANCE, VOCABULARY, SAMPLE_RATE, ERROR)
        wrong = next((key for key in self.notes if not isinstance(key, str) or not key or key in own), None)
        if wrong is not None:
            raise ConfigError(f"notes: key {wrong!r} cannot be taken; use another than {', '.join(own)}")
        try:
            Stored(self.metadata(None), fix="pass another to the export").check()
        except ModelError as error:
            raise ConfigError(str(error)) from error

    def metadata(self, error: float | None) -> dict[str, str]:
        """Return the ``metadata_props`` of a file with this largest relative error (``None``: it could not be run)."""
        found: dict[str, str] = {PROVENANCE: _json(PROVENANCE, dict(self.provenance), ascii_only=True)}
        if self.preprocess is not None:
            found[PREPROCESS] = _json(PREPROCESS, dict(self.preprocess), ascii_only=True)
        for key, names in ((LABELS, self.labels), (VOCABULARY, self.vocabulary)):
            if names is not None:
                found[key] = _json(key, list(names))
        if self.sample_rate is not None:
            found[SAMPLE_RATE] = _json(SAMPLE_RATE, self.sample_rate)
        found |= {key: _json(key, value) for key, value in self.notes.items()}
        if error is not None:
            found[ERROR] = f"{error:.1e}"
        return found


def _json(key: str, value: Any, *, ascii_only: bool = False) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"note {key!r} cannot be stored as JSON: {error}; pass plain numbers, text, lists") from error


@dataclass(frozen=True, slots=True)
class ExportResult:
    """One written file; ``max_relative_error`` is ``None`` where ONNX Runtime does not know an operator."""

    path: Path
    max_relative_error: float | None
    foreign_ops: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.max_relative_error is None:
            return f"{self.path}: checked, not run: ONNX Runtime does not know {', '.join(self.foreign_ops)}"
        return f"{self.path}: largest relative error {self.max_relative_error:.1e} ({FORMULA})"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text (and the next, after a colon), or its type where it has no text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def relative_error(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """Return max|a - b| / max|b|, the largest over the outputs, in float64.

    Places where both hold the same infinity or both hold NaN agree; any other infinity or NaN gives infinity, and so
    does a different number or shape of outputs. Where ``b`` is all zero, the error is 0 if ``a`` is too, else infinity.
    """
    if [a.shape for a in got] != [b.shape for b in wanted]:
        return float("inf")
    return max((_output_error(a, b) for a, b in zip(got, wanted, strict=True)), default=0.0)


def _output_error(got: Array, wanted: Array) -> float:
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(a - b))
    largest = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest / scale if scale else float("inf")


def dynamic_axes(
    inputs: Sequence[Array],
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic: Mapping[str, Mapping[int, str]] | None,
) -> list[dict[int, str]]:
    """Return the dynamic axes of every input, in order; ``dynamic=None`` makes axis 0 of every input ``batch``.

    Raises:
        ConfigError: the number of names does not fit, or ``dynamic`` holds an unknown name or axis.
    """
    if len(inputs) != len(input_names):
        raise ConfigError(f"got {len(inputs)} example inputs and {len(input_names)} input_names {list(input_names)}")
    if dynamic is None:
        return [{0: "batch"} if x.ndim else {} for x in inputs]
    unknown = set(dynamic) - set(input_names) - set(output_names)  # outputs' dynamic axes follow from the inputs'
    if unknown:
        raise ConfigError(f"dynamic names {sorted(unknown)}, which are not among input_names {list(input_names)}")
    axes = [dict(dynamic.get(name, {})) for name in input_names]
    for name, array, named in zip(input_names, inputs, axes, strict=True):
        if any(not 0 <= axis < array.ndim for axis in named):
            raise ConfigError(f"dynamic axes {sorted(named)} of input {name!r}: it has axes 0 to {array.ndim - 1}")
    return axes


def dynamic_inputs(inputs: Sequence[Array], axes: Sequence[Mapping[int, str]]) -> list[list[Array]]:
    """Return what a dynamic model is tried on: the example, a batch of 2n + 1, and every other dynamic axis doubled.

    Args:
        inputs: the example, one array per model input.
        axes: per input, its dynamic axes and their names. Names found on an axis 0 are batch axes.

    Returns:
        The example, then a list of arrays where a batch axis is dynamic, then one where another axis is. New samples
        hold the example's own values in reverse order: other samples, but valid ones even for, say, token numbers.
    """
    batch = {name for named in axes for axis, name in named.items() if axis == 0}
    others = {name for named in axes for name in named.values()} - batch
    tried = [list(inputs)]
    if batch:
        tried.append([_grown(x, named, batch, 1) for x, named in zip(inputs, axes, strict=True)])
    if others:
        tried.append([_grown(x, named, others, 0) for x, named in zip(inputs, axes, strict=True)])
    return tried


def _grown(array: Array, named: Mapping[int, str], names: set[str], extra: int) -> Array:
    """Return the array with each axis of these names grown from n to 2n + extra."""
    for axis, name in named.items():
        if name in names:
            size = 2 * array.shape[axis] + extra
            array = np.concatenate([array, np.flip(array), array], axis=axis).take(range(size), axis=axis)
    return np.ascontiguousarray(array)


def check_dynamic(model: ModelProto, axes: Sequence[Mapping[int, str]]) -> None:
    """Raise :class:`ModelError` where the export turned a dynamic axis into a constant."""
    for value, named in zip(model.graph.input, axes, strict=True):
        for axis in named:
            dim = value.type.tensor_type.shape.dim[axis]
            if not dim.dim_param:
                raise ModelError(
                    f"axis {axis} of input {value.name!r} became the constant {dim.dim_value} in the exported model: "
                    "the model's code fixes it; leave the axis out of dynamic"
                )


def with_sizes(model: ModelProto, inputs: Sequence[Array]) -> ModelProto:
    """Return a copy with the sizes of these inputs, one array per graph input, in place of the named dimensions."""
    copy = type(model)()
    copy.CopyFrom(model)
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

    Batch norms stay where fusing them makes weights vanish in float16; one line of the log says so.

    Raises:
        ModelError: onnxsim failed, or its own check of the result did.
    """
    import onnxsim

    from engine.onnx import fusing_harm

    try:
        simplified, passed = onnxsim.simplify(model)
        if harm := fusing_harm(model.graph, simplified.graph):
            _log.warning("batch norms are not fused: %s", harm)
            simplified, passed = onnxsim.simplify(model, skip_fuse_bn=True)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"onnxsim cannot simplify the exported model: {first_line(error)}") from error
    if not passed:
        raise ModelError("onnxsim changed what the exported model computes; report the model and the onnxsim version")
    return _with_modules(_stripped(simplified), model)


_MODULES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter notes the modules a node comes from."""


def _with_modules(simplified: ModelProto, exported: ModelProto) -> ModelProto:
    """Note the source module of every node that is still the one that was exported; the tools name a bad node by it."""
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
    """Remove in place what exporters note about the machine they ran on (source paths, stack traces)."""
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
    """Return a float16 copy: weights, inputs and outputs. Weights beyond the float16 range are clamped to it.

    Raises:
        ModelError: what the model takes and gives is float16 already, or it cannot be converted.
    """
    import warnings

    from engine.onnx import to_float16 as converted

    kinds = {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
    if _HALF in kinds and _FLOAT not in kinds:
        raise ModelError("cannot convert the model to float16: it is float16 already; use float16=False")
    with warnings.catch_warnings():
        # One warning per weight that underflows or is clamped; the comparison with the source judges the sum of it.
        warnings.filterwarnings("ignore", message="the float32 number .* will be truncated", category=UserWarning)
        try:
            return converted(model, clamp=True)
        except ModelError as error:
            raise ModelError(f"{error}; use float16=False") from error


def foreign_ops(model: ModelProto) -> tuple[str, ...]:
    """Return the operators (``domain::Name``) that neither ONNX Runtime nor a function inside the model defines."""
    defined = {(function.domain, function.name) for function in model.functions}
    used = {(node.domain, node.op_type) for part in (model.graph, *model.functions) for node in part.node}
    return tuple(sorted(f"{domain}::{name}" for domain, name in used - defined if domain not in KNOWN_DOMAINS))


def three_variants(static: ModelProto, free: ModelProto, cases: list[Expected], float16: bool) -> list[Variant]:
    """Return the files of one model: static (tried on the first case only), dynamic and, where wanted, float16."""
    variants = [Variant("", static, cases[:1]), Variant("_dyn", free, cases)]
    return [*variants, Variant("_float16_dyn", to_float16(free), cases, "float16")] if float16 else variants


def write_onnx_files(
    stem: Path, variants: Sequence[Variant], notes: ModelNotes, tolerances: Mapping[str, float] = TOLERANCES
) -> list[ExportResult]:
    """Check, run and compare every variant, then put all files in place.

    Nothing is replaced until every variant has passed; each file is then replaced in one step. Weights above 2 GiB go
    to ``<file>.data`` beside it.

    Args:
        stem: path and start of the file names; the folder is made where it is missing.
        variants: what to write.
        notes: goes into the files' ``metadata_props``, together with each file's largest relative error.
        tolerances: largest relative error allowed, by the variant's dtype.

    Raises:
        ModelError: a check failed, an error is above its tolerance, or the folder cannot be written.
    """
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=stem.parent) as folder:
            names = [f"{stem.name}{variant.suffix}.onnx" for variant in variants]
            made = [
                _make(Path(folder, name), variant, notes, tolerances[variant.dtype])
                for name, variant in zip(names, variants, strict=True)
            ]
            # Data files sort behind their models ("x.onnx" < "x.onnx.data"): in reverse, they are there first.
            for file in sorted(Path(folder).iterdir(), reverse=True):
                os.replace(file, stem.parent / file.name)
    except OSError as error:
        raise ModelError(f"{stem.parent}: cannot write the exported files: {error}; choose another folder") from error
    return [ExportResult(stem.parent / r.path.name, r.max_relative_error, r.foreign_ops) for r in made]


def _make(path: Path, variant: Variant, notes: ModelNotes, tolerance: float) -> ExportResult:
    """Write one file to a temporary folder, check it, run it, and add its notes."""
    import onnx

    foreign = foreign_ops(variant.model)
    large = _weight_bytes(variant.model.graph) > MAX_PROTOBUF
    onnx.save_model(variant.model, path, save_as_external_data=large, location=f"{path.name}.data")
    _check(path)
    error = None if foreign else _compared(path, variant, tolerance)
    noted = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(noted, dict(sorted(notes.metadata(error).items())))
    path.write_bytes(noted.SerializeToString(deterministic=True))
    return ExportResult(path, error, foreign)


def _weight_bytes(graph: GraphProto) -> int:
    return sum(len(weight.raw_data) for weight in graph.initializer)


def _check(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)  # by path: the only way for files above 2 GiB
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{path.name}: onnx.checker refuses the exported model: {first_line(error)}") from error


def _compared(path: Path, variant: Variant, tolerance: float) -> float:
    """Return the largest relative error over the variant's cases; raise where it is above the tolerance."""
    worst = 0.0
    with open_engine("onnx", EngineSpec(ckpt=path, dtype=variant.dtype)) as engine:
        for case in variant.cases:
            half = variant.dtype == "float16"
            inputs = [x.astype(np.float16) if half and x.dtype == np.float32 else x for x in case.inputs]
            outputs = engine(inputs)
            worst = max(worst, relative_error(outputs if isinstance(outputs, list) else [outputs], case.wanted))
    if worst > tolerance:
        raise ModelError(
            f"{path.name}: largest relative error {worst:.1e} ({FORMULA}) is above the tolerance {tolerance:.0e}; "
            "no file was written; check the model's operators, or raise the tolerance if this is expected"
        )
    return worst
