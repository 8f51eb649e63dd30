"""Run a pass and prove it: the optimised model keeps its face and computes what the original computes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.base import Array, PassError, TecoInferError
from engine.batching.independence import RANDOM, difference
from engine.passes.options import PassOptions, short_reason
from engine.random_arrays import random_array
from tecoinfer_modelzoo.text import level_of_user

if TYPE_CHECKING:
    import onnx

    from engine.backends.ort import HostSession

SEED = 20240607
UNBOUND_BATCH = 2
UNBOUND_SIZE = 32
"""Sizes given to dynamic dimensions that ``input_shapes`` leaves open: the first of an input, and any other."""

TOLERANCE = 1e-4
TOLERANCE_FLOAT16 = 2e-2
"""Largest |after - before| / max|before| of an output: of float32 models, and of those that hold float16."""

_warned: set[str] = set()


def apply_passes(
    model: onnx.ModelProto,
    options: PassOptions,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    compare: bool = True,
) -> onnx.ModelProto:
    """Return the model after the pass file's ``use_passes``, checked; without one, return ``model`` itself.

    Both models are run once on the same random input (seeded; normal floats, integers 0 and 1) by ONNX Runtime on the
    CPU. A model that ONNX Runtime cannot run, or that draws random numbers, is not compared; a warning says so once.

    Args:
        model: left as it is.
        options: what the pass file says.
        input_shapes: shapes to check with, by input name; dynamic dimensions of other inputs get 2 (the first) and 32.
        compare: whether to run both; ``False`` where the same pass was compared on the same model in another shape.

    Raises:
        PassError: the pass failed, returned something else than a valid model, changed the names or types of inputs or
            outputs, lowered the opset or IR version, or changed what the model computes.
    """
    if options.use_passes is None:
        return model
    where = str(options.path) if options.path else getattr(options.use_passes, "__module__", "pass")
    result = _run_pass(model, options, where)
    _check_valid(result, where)
    _check_face(model, result, where)
    _keep_metadata(model, result)
    if compare:
        _check_outputs(model, result, where, input_shapes or {})
    return result


def _run_pass(model: onnx.ModelProto, options: PassOptions, where: str) -> onnx.ModelProto:
    import onnx

    from engine.onnx.large import copy_model

    copy = copy_model(model)
    assert options.use_passes is not None  # noqa: S101 - for the type checker; apply_passes returned otherwise
    try:
        result = options.use_passes(copy)
    except PassError:
        raise
    except Exception as error:
        raise PassError(
            f"{where}: use_passes failed: {short_reason(error)}; correct it, or run without pass_path"
        ) from error
    if not isinstance(result, onnx.ModelProto):
        raise PassError(f"{where}: use_passes returned {type(result).__name__}; return the onnx.ModelProto it made")
    return result


def _check_valid(model: onnx.ModelProto, where: str) -> None:
    import onnx_ir as ir
    from onnx_ir.passes.common import CheckerPass

    try:
        # Through onnx-ir, which leaves large weights out: the checker itself stops at protobuf's 2 GiB.
        CheckerPass()(ir.from_proto(model))
    except Exception as error:
        raise PassError(f"{where}: use_passes returned an invalid model: {short_reason(error)}; correct it") from error


def _check_face(before: onnx.ModelProto, after: onnx.ModelProto, where: str) -> None:
    for kind in ("input", "output"):
        have, want = _face(after, kind), _face(before, kind)
        if have != want:
            raise PassError(
                f"{where}: use_passes changed the model's {kind}s from {want} to {have}; keep names, order, types"
            )
    for what, old, new in (
        ("IR version", before.ir_version, after.ir_version),
        ("opset", _opset(before), _opset(after)),
    ):
        if new < old:
            raise PassError(f"{where}: use_passes lowered the {what} from {old} to {new}; keep it")


def _face(model: onnx.ModelProto, kind: str) -> list[str]:
    import onnx

    weights = {weight.name for weight in model.graph.initializer}
    values = [value for value in getattr(model.graph, kind) if kind == "output" or value.name not in weights]
    return [f"{v.name}:{onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type).lower()}" for v in values]


def _opset(model: onnx.ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=0)


def _keep_metadata(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Put back the metadata (class labels, preprocessing) that a pass building a new model forgot."""
    have = {entry.key for entry in after.metadata_props}
    for entry in before.metadata_props:
        if entry.key not in have:
            after.metadata_props.add(key=entry.key, value=entry.value)


def _check_outputs(
    before: onnx.ModelProto, after: onnx.ModelProto, where: str, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    from engine.backends.ort import HostSession

    if any(node.op_type in RANDOM for node in _nodes(before.graph)):
        _warn_unchecked(where, "the model draws random numbers")
        return
    try:
        session = HostSession(before)
        feed, expected = _first_run(session, random_inputs(session, shapes))
    except TecoInferError as error:
        _warn_unchecked(where, short_reason(error))
        return
    try:
        results = HostSession(after).run(feed)
    except TecoInferError as error:
        raise PassError(
            f"{where}: the model no longer runs after use_passes: {short_reason(error)}; correct it"
        ) from error
    tolerance = TOLERANCE_FLOAT16 if _half(before) else TOLERANCE
    for spec, want, got in zip(session.outputs, expected, results, strict=True):
        problem = difference(want, got, tolerance)
        if problem:
            raise PassError(
                f"{where}: use_passes changed output {spec.name!r}: {problem}; correct it, or run without pass_path"
            )


def _first_run(session: HostSession, feed: list[Array]) -> tuple[list[Array], list[Array]]:
    """Return inputs that a model takes, and its outputs: where whole numbers of 1 are too large, they are all 0.

    They may be places in something that has one entry.

    Raises:
        TecoInferError: the model does not run on either.
    """
    try:
        return feed, session.run(feed)
    except TecoInferError:
        feed = [np.zeros_like(array) if array.dtype.kind in "iu" else array for array in feed]
        return feed, session.run(feed)


def random_inputs(session: HostSession, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """Return seeded random arrays for a session's inputs: normal floats, 0 or 1 for integers and bools.

    Dimensions of the same symbol get the same size.
    """
    rng = np.random.default_rng(SEED)
    sizes: dict[str, int] = {}
    feed: list[Array] = []
    for spec, raw in zip(session.inputs, session.raw_shapes, strict=True):
        shape = shapes.get(spec.name) or tuple(_size(dim, axis, sizes) for axis, dim in enumerate(raw))
        for dim, size in zip(raw, shape, strict=False):
            if isinstance(dim, str):
                sizes.setdefault(dim, size)
        feed.append(random_array(rng, shape, spec.dtype))
    return feed


def _size(dim: int | str | None, axis: int, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return sizes.get(dim or "", UNBOUND_SIZE if axis else UNBOUND_BATCH)


def _half(model: onnx.ModelProto) -> bool:
    """Say whether the model holds float16 weights or values, which rounding moves by up to 2**-11 of each."""
    import onnx

    kinds = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    graph = model.graph
    values: Sequence[onnx.ValueInfoProto] = [*graph.input, *graph.output]
    return (
        any(weight.data_type in kinds for weight in graph.initializer)
        or any(value.type.tensor_type.elem_type in kinds for value in values)
        or any(a.name == "to" and a.i in kinds for node in graph.node if node.op_type == "Cast" for a in node.attribute)
    )


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _warn_unchecked(where: str, reason: str) -> None:
    if where not in _warned:
        _warned.add(where)
        warnings.warn(
            f"{where}: its result was not compared with the original model: {reason}", stacklevel=level_of_user()
        )
