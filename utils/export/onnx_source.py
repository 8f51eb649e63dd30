"""Forms of an ONNX file that others exported: static, dynamic and float16, each compared with the file itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, Engine, EngineSpec, ModelError, TecoInferError, TensorSpec, open_engine, random_array
from engine.signature import batch_axes, may_be_batch
from utils.export.agree import TOLERANCES
from utils.export.dynamic import dynamic_inputs
from utils.export.forms import FORMS, chosen_forms
from utils.export.near_ties import run
from utils.export.onnx_files import Expected, ExportResult, Made, ModelNotes, variants_of, write_onnx_files
from utils.stored import PROVENANCE

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

BATCH = "batch"
"""Name of a batch dimension that has none, or that is made dynamic."""

ROWS = 3
"""Samples of the call on which a batch that was made dynamic is compared with the source, sample by sample."""

_NO_TABLE = 2**20 - 1
"""Bound of :func:`engine.onnx.random_input_bounds` for integers that do not index a table."""

Sizes = Mapping[str, int]
"""Sizes of dynamic dimensions by name."""


@dataclass(frozen=True)
class SourceNotes(ModelNotes):
    """Metadata of a form: all of the source (``texts``, by key), what it lacks (``added``: JSON values by key), its
    provenance if it has none, and the error."""

    texts: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)

    def metadata(self, error: float | None) -> dict[str, str]:
        """Return the ``metadata_props`` of a file with this largest relative error (``None``: not run)."""
        own = ModelNotes.metadata(self, error)
        kept = {PROVENANCE: self.texts[PROVENANCE]} if PROVENANCE in self.texts else {}
        more = {key: json.dumps(value, sort_keys=True, ensure_ascii=False) for key, value in self.added.items()}
        return {**self.texts, **own, **kept, **more}


def export_onnx_file(
    source: Path,
    stem: Path,
    *,
    sizes: Sizes | None = None,
    forms: Sequence[str] = FORMS,
    provenance: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
    tolerances: Mapping[str, float] = TOLERANCES,
) -> list[ExportResult]:
    """Write ``<stem>.onnx`` (static), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx`` of an ONNX file.

    The static file has batch 1 (or the source's fixed batch) and the given sizes. In the dynamic ones the source's
    dynamic dimensions stay; a batch that the source fixes to 1 is made dynamic, which is proven by running
    :data:`ROWS` samples together and alone. All names and all metadata of the source are kept.

    Args:
        source: the file. stem: path and start of the file names. forms: the files to write.
        sizes: of dynamic dimensions other than the batch, by name. A dimension without a name is called after its
            input and axis: ``input_2``; white space, ``=`` and commas in names become underscores.
        provenance: stored if the source has none. notes: JSON values by key of the metadata, which the source lacks or
            has wrong, such as ``class_labels`` and ``preprocess`` (:mod:`utils.stored`).
        tolerances: maximum relative error by dtype.

    A float16 source is made float32 first, without a change of its weights; the files differ from it by its rounding,
    so that the tolerance of float16 holds for all of them.

    Returns:
        One result per file.

    Raises:
        ConfigError: a note is invalid.
        ModelError: the source cannot be read or run, or a size is missing.
        ExportError: a form fails a check, or exceeds its tolerance; the others were written (``results``).
    """
    from engine.onnx import load_model, metadata, to_float32

    chosen = chosen_forms(forms)
    model = with_names(load_model(source))
    if _has_float16(model):
        model, tolerances = to_float32(model), {**tolerances, "float32": tolerances["float16"]}
    told = dict(provenance or {"source": source.name})
    stored = SourceNotes(provenance=told, texts=metadata(model), added=dict(notes or {}))
    inputs = example_arrays(model, sizes or {}, source)
    static = _static(model, inputs)
    free, cases = _dynamic(model, source, inputs)
    return write_onnx_files(stem, variants_of(static, free, cases, chosen), stored, tolerances)


def with_names(model: ModelProto) -> ModelProto:
    """Return a copy in which each dynamic dimension of an input has a name: ``batch`` for axis 0, else ``input_axis``,
    and each node one of its own. Inputs with an initializer, as files of IR 3 have them, are constants."""
    from engine.onnx import copy_model, graph_inputs

    copy = copy_model(model)
    kept = [info.name for info in graph_inputs(copy)]
    wanted = [info for info in copy.graph.input if info.name in kept]
    if len(wanted) < len(copy.graph.input):
        found = [type(info).FromString(info.SerializeToString()) for info in wanted]
        del copy.graph.input[:]
        copy.graph.input.extend(found)
        copy.ir_version = max(copy.ir_version, 4)  # before, an initializer had to be an input
    for info in copy.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.dim_param and not (dim.HasField("dim_value") and dim.dim_value > 0):
                dim.dim_param = BATCH if axis == 0 else f"{info.name}_{axis}"
    _plain_symbols(copy)
    _usual_batch(copy)
    _name_nodes(copy)
    return copy


def _plain_symbols(model: ModelProto) -> None:
    """Replace what ``--dim NAME=SIZE`` cannot name (white space, equal signs, commas) in symbols of sizes, in place."""
    graph = model.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(r"[\s=,]+", "_", dim.dim_param.strip()) or BATCH


def _usual_batch(model: ModelProto) -> None:
    """Call the batch :data:`BATCH`, in place, if only the graph tells which dimension it is, as in T x N x D."""
    from engine.batching import batching_of

    shapes = _shapes(model)
    symbols = {size for shape in shapes for size in shape if isinstance(size, str)}
    if len(symbols) < 2 or all(map(may_be_batch, _batch_names(model))):
        return
    found = batching_of(model, {})
    both = zip(shapes, found.inputs, strict=True)
    names = {shape[axis] for shape, axis in both if axis is not None and isinstance(shape[axis], str)}
    if not found.independent or len(names) != 1 or BATCH in symbols:
        return
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = BATCH


def _shapes(model: ModelProto) -> list[list[int | str]]:
    return [[dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input]


def _name_nodes(model: ModelProto) -> None:
    """Give each node of the main graph a name of its own that is not an operator's, as pass files need, in place."""
    used = Counter(node.name for node in model.graph.node)
    taken = {*used, *(node.op_type for node in model.graph.node)}
    operators = {node.op_type for node in model.graph.node}
    for place, node in enumerate(model.graph.node):
        if node.name and used[node.name] == 1 and node.name not in operators:
            continue
        name = f"{node.op_type}_{place}"
        while name in taken:
            name += "_"
        node.name = name
        taken.add(name)


def open_dimensions(model: ModelProto) -> dict[str, tuple[str, int]]:
    """Return the dynamic dimensions other than the batch: (first input, axis) by name, of a model with names."""
    found: dict[str, tuple[str, int]] = {}
    batch = _batch_names(model)
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param and dim.dim_param not in batch:
                found.setdefault(dim.dim_param, (info.name, axis))
    return found


def _batch_names(model: ModelProto) -> set[str]:
    """Return the names of dynamic dimensions that are the batch: on axis 0, or elsewhere with a usual name."""
    shapes = _shapes(model)
    found = (shape[axis] for shape, axis in zip(shapes, batch_axes(shapes), strict=True) if axis is not None)
    return {name for name in found if isinstance(name, str)}


def _has_float16(model: ModelProto) -> bool:
    """Return whether weights, inputs or outputs are float16."""
    from onnx import TensorProto

    ends = (info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output))
    weights = (tensor.data_type for tensor in model.graph.initializer)
    return TensorProto.FLOAT16 in (*ends, *weights)


def example_arrays(model: ModelProto, sizes: Sizes, source: Path, seed: int = 0) -> list[Array]:
    """Return random values for each input of a model with names: standard normal floats, valid table indices, masks of
    1. Raises ModelError if a size is missing, or an input has no random values."""
    from engine.onnx import random_input_bounds, signature

    specs, _, shapes = signature(model)
    batch = _batch_names(model)
    bounds = random_input_bounds(model) if any(one.dtype.kind in "iu" for one in specs) else {}
    rng = np.random.default_rng(seed)
    found = []
    for spec, shape in zip(specs, shapes, strict=True):
        missing = next((one for one in shape if isinstance(one, str) and one not in batch and one not in sizes), None)
        if missing is not None:
            raise ModelError(f"{source}: input {spec.name!r} has a dynamic dimension {missing!r}; give its size")
        size = [one if isinstance(one, int) else 1 if one in batch or one is None else sizes[one] for one in shape]
        found.append(_drawn(rng, spec, size, bounds, source))
    return found


def _drawn(
    rng: np.random.Generator,
    spec: TensorSpec,
    shape: Sequence[int],
    bounds: Mapping[str, tuple[int, int]],
    source: Path,
) -> Array:
    kind = spec.dtype.kind
    if kind not in "fiub":
        raise ModelError(f"{source}: input {spec.name!r} takes {spec.dtype}, which no engine computes; use numbers")
    if kind == "f":
        return random_array(rng, shape, spec.dtype)
    if kind == "b" or "mask" in spec.name.lower():
        return np.ones(shape, spec.dtype)
    low, high = bounds.get(spec.name, (0, 1))
    high = high if spec.dtype.itemsize == 1 or high < _NO_TABLE else 1
    return rng.integers(low, high, shape, endpoint=True).astype(spec.dtype)


def _static(model: ModelProto, inputs: Sequence[Array]) -> Made:
    from engine.onnx import bind_shapes, graph_inputs

    shapes = {info.name: x.shape for info, x in zip(graph_inputs(model), inputs, strict=True)}
    try:
        return bind_shapes(model, shapes)
    except ModelError as error:
        return error


def _dynamic(model: ModelProto, source: Path, inputs: Sequence[Array]) -> tuple[Made, list[Expected]]:
    """Return the dynamic graph, and what the source computes: on the example first, then on other sizes."""
    from engine.onnx import graph_inputs

    with open_engine("onnx", EngineSpec(ckpt=source)) as engine:
        first = Expected(list(inputs), _answers(engine, inputs, source))
        if _batch_names(model):
            axes = [
                {axis: dim.dim_param for axis, dim in enumerate(info.type.tensor_type.shape.dim) if dim.dim_param}
                for info in graph_inputs(model)
            ]
            return model, [first, *_grown(engine, dynamic_inputs(inputs, axes)[1:])]
        made = with_free_batch(model)
        if isinstance(made, ModelError):
            return made, [first]
        return made, [first, _together(engine, model, source, inputs)]


def _answers(engine: Engine, inputs: Sequence[Array], source: Path) -> list[Array]:
    try:
        return _run(engine, inputs)
    except TecoInferError as error:
        shapes = [list(x.shape) for x in inputs]
        raise ModelError(f"{source} cannot run inputs of shapes {shapes}: {error}") from error


def _run(engine: Engine, inputs: Sequence[Array]) -> list[Array]:
    """Return the source's outputs, those of float16 as float32."""
    half = any(tensor.dtype == np.float16 for tensor in engine.inputs)
    found = run(engine, inputs, "float16" if half else "float32")
    return [x.astype(np.float32) if x.dtype == np.float16 else x for x in found]


def _grown(engine: Engine, tried: Sequence[Sequence[Array]]) -> list[Expected]:
    """Return the source's answers on other sizes; sizes that the source itself cannot run are left out."""
    found = []
    for inputs in tried:
        try:
            found.append(Expected(list(inputs), _run(engine, inputs)))
        except TecoInferError:  # such as a side that has to be a multiple of 32
            continue
    return found


def _together(engine: Engine, model: ModelProto, source: Path, inputs: Sequence[Array]) -> Expected:
    """Return several samples as one call, and what the source, whose batch is fixed, answers to each alone."""
    sizes = {name: inputs[place].shape[axis] for name, (place, axis) in _places(model).items()}
    samples = [list(inputs), *(example_arrays(model, sizes, source, seed) for seed in range(1, ROWS))]
    answers = [_answers(engine, one, source) for one in samples]
    joined = [np.concatenate(parts) for parts in zip(*samples, strict=True)]
    return Expected(
        joined, [np.concatenate(parts) if parts[0].ndim else parts[0] for parts in zip(*answers, strict=True)]
    )


def _places(model: ModelProto) -> dict[str, tuple[int, int]]:
    names = [info.name for info in model.graph.input]
    return {name: (names.index(where), axis) for name, (where, axis) in open_dimensions(model).items()}


def with_free_batch(model: ModelProto) -> ModelProto | ModelError:
    """Return a copy whose batch of 1 is dynamic, or why there is none.

    A leading 1 in the target of a ``Reshape`` becomes 0, which takes the size of its input. Whether the result
    computes each sample alone is for the caller to prove.
    """
    from engine.onnx import copy_model, infer_shapes

    fixed = [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input]
    if not fixed or any(not shape or shape[0] != 1 for shape in fixed):
        return ModelError("its inputs have no batch axis of size 1; only the static form is written")
    copy = copy_model(model)
    del copy.graph.value_info[:]
    for info in (*copy.graph.input, *copy.graph.output):
        shape = info.type.tensor_type.shape.dim
        if shape and shape[0].dim_value == 1:
            shape[0].dim_param = BATCH
        elif shape and not shape[0].dim_param:
            return ModelError(f"output {info.name!r} has no batch axis of size 1; only the static form is written")
    _free_reshapes(copy)
    try:
        return infer_shapes(copy)
    except ModelError as error:
        return error


def _free_reshapes(model: ModelProto) -> None:
    """Replace a leading 1 in the constant targets of ``Reshape`` nodes by 0, in place."""
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            constants |= dict.fromkeys(node.output, *values) if values else {}
    for node in list(model.graph.node):
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] not in constants or _keeps_zero(node):
            continue
        target = numpy_helper.to_array(constants[node.input[1]])
        if target.ndim != 1 or target.size < 2 or target[0] != 1:
            continue
        name = f"{node.input[1]}@{BATCH}"
        if name not in constants:
            changed = target.copy()
            changed[0] = 0
            model.graph.initializer.append(numpy_helper.from_array(changed, name))
            constants[name] = model.graph.initializer[-1]
        node.input[1] = name


def _keeps_zero(node: NodeProto) -> bool:
    return any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)
