"""Application of a pass with a check: the optimized model has the same interface and the same results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.base import Array, PassError, TecoInferError
from engine.batching.independence import difference
from engine.batching.random_operators import RANDOM
from engine.passes.options import PassOptions, short_reason
from engine.random_arrays import random_array
from tecoinfer_modelzoo.text import user_stacklevel

if TYPE_CHECKING:
    import onnx

    from engine.backends.ort import HostSession

SEED = 20240607
UNBOUND_BATCH = 2
UNBOUND_SIZE = 32  # sizes of dynamic dimensions that ``input_shapes`` does not bind: the first of an input, and others
TOLERANCE = 1e-4
TOLERANCE_FLOAT16 = 2e-2
"""Maximum |after - before| / max|before| of an output, for float32 models and for models with float16."""

_warned: set[str] = set()


def apply_passes(
    model: onnx.ModelProto,
    options: PassOptions,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    compare: bool = True,
) -> onnx.ModelProto:
    """Return the model after the pass file's ``use_passes``, checked; without ``use_passes``, return ``model``.

    Both models are run once with the same random input (seeded; normal floats, integers 0 and 1) in ONNX Runtime on the
    CPU. Models that ONNX Runtime cannot run, or that draw random numbers, are not compared; this is warned about once.

    Args:
        model: the model, not changed.
        options: options of the pass file.
        input_shapes: shapes for the check by input name; other dynamic dimensions get 2 (the first) and 32.
        compare: whether to run both; ``False`` if the pass was compared on the same model with another shape.

    Raises:
        PassError: the pass failed, returned an invalid model, changed names or types of inputs or outputs, lowered the
            opset or IR version, or changed the results.
    """
    if options.use_passes is None:
        return model
    where = str(options.path) if options.path else getattr(options.use_passes, "__module__", "pass")
    result = _run_pass(model, options, where)
    _check_valid(result, where)
    _check_interface(model, result, where)
    _keep_metadata(model, result)
    if compare:
        _check_outputs(model, result, where, input_shapes or {})
    return result


def _run_pass(model: onnx.ModelProto, options: PassOptions, where: str) -> onnx.ModelProto:
    import onnx

    from engine.onnx.large import copy_model

    copy = copy_model(model)
    assert options.use_passes is not None  # noqa: S101 - for the type checker, checked by apply_passes
    try:
        result = options.use_passes(copy)
    except PassError:
        raise
    except Exception as error:
        fix = "correct it, or run without pass_path"
        raise PassError(f"{where}: use_passes failed: {short_reason(error)}; {fix}") from error
    if not isinstance(result, onnx.ModelProto):
        raise PassError(f"{where}: use_passes returned {type(result).__name__}; return an onnx.ModelProto")
    return result


def _check_valid(model: onnx.ModelProto, where: str) -> None:
    import onnx_ir as ir
    from onnx_ir.passes.common import CheckerPass

    try:
        # By onnx-ir, which omits large weights: the checker itself is limited to 2 GiB by protobuf.
        CheckerPass()(ir.from_proto(model))
    except Exception as error:
        raise PassError(f"{where}: use_passes returned an invalid model: {short_reason(error)}; correct it") from error


def _check_interface(before: onnx.ModelProto, after: onnx.ModelProto, where: str) -> None:
    for kind in ("input", "output"):
        have, want = _interface(after, kind), _interface(before, kind)
        if have != want:
            change = f"the model's {kind}s from {want} to {have}; keep names, order, types"
            raise PassError(f"{where}: use_passes changed {change}")
    for what, old, new in (
        ("IR version", before.ir_version, after.ir_version),
        ("opset", _opset(before), _opset(after)),
    ):
        if new < old:
            raise PassError(f"{where}: use_passes lowered the {what} from {old} to {new}; keep it")


def _interface(model: onnx.ModelProto, kind: str) -> list[str]:
    import onnx

    weights = {weight.name for weight in model.graph.initializer}
    values = [value for value in getattr(model.graph, kind) if kind == "output" or value.name not in weights]
    return [f"{v.name}:{onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type).lower()}" for v in values]


def _opset(model: onnx.ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=0)


def _keep_metadata(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Copy metadata (class labels, preprocessing) that the pass dropped."""
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
        raise PassError(f"{where}: the model fails after use_passes: {short_reason(error)}; correct it") from error
    tolerance = TOLERANCE_FLOAT16 if _half(before) else TOLERANCE
    for spec, want, got in zip(session.outputs, expected, results, strict=True):
        problem = difference(want, got, tolerance)
        if problem:
            change = f"output {spec.name!r}: {problem}; correct it, or run without pass_path"
            raise PassError(f"{where}: use_passes changed {change}")


def _first_run(session: HostSession, feed: list[Array]) -> tuple[list[Array], list[Array]]:
    """Return inputs that the model accepts, with integers 0 if 1 is out of range, and its outputs."""
    try:
        return feed, session.run(feed)
    except TecoInferError:
        feed = [np.zeros_like(array) if array.dtype.kind in "iu" else array for array in feed]
        return feed, session.run(feed)


def random_inputs(session: HostSession, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """Return seeded random arrays for a session: normal floats, 0 or 1 for integers; equal symbols have equal sizes."""
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
    """Return whether the model has float16 weights or values, which rounding changes by up to 2**-11."""
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
            f"{where}: its result was not compared with the original model: {reason}", stacklevel=user_stacklevel()
        )
