"""Whether samples depend on one another, determined from the inputs of a call if the graph does not decide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.ort import HostSession
from engine.base import Array, EngineError, ModelError, TensorSpec
from engine.batching.batch import along, batch_of, compare_with_changed, compare_with_parts, samples_differ
from engine.batching.independence import TOLERANCE, difference
from engine.sdaa.plan import Lowering, Plan

if TYPE_CHECKING:
    from onnx import ModelProto


TRIED = 16
"""Maximum number of samples that are tried alone."""


def prove(
    source: Lowering | None, plan: Plan, inputs: list[Array], specs: Sequence[TensorSpec], static_batch: int | None
) -> str | None:
    """Return why the samples of a call depend on one another: "" if they do not, ``None`` if the call does not show it.

    A model of any batch is run on the whole call and on parts of it, in float32 on the host, as in its file. For a
    fixed batch, samples are replaced in the plan.

    Args:
        source: the model; ``None`` if there is only the plan of a saved engine.
        plan: of the engine's usual shard. static_batch: the batch the model is fixed to, or ``None``.
        inputs, specs: the call's arrays and their inputs, in the model's order.
    """
    differ = samples_differ(inputs, specs)
    if static_batch is None and source is not None:
        why = _compared_whole(_in_float32(source), plan, inputs, specs)
        return why if why or differ else None
    if not differ or plan.key.rows < 2:
        return None
    return compare_with_changed(plan.run, inputs, specs, plan.outputs, plan.key.rows)


def tried_apart(
    source: Lowering, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> str | None:
    """Return how samples change when they are run alone, in halves, and in reverse order: "" if they do not.

    For a model of any batch whose graph seems to combine samples. Agreement of one call is not a proof. ``None`` if the
    model refuses such calls.

    Args:
        source: the model, run in float32 on the host. inputs, specs: the call's arrays and their inputs, in the model's
            order; at least two samples that differ. outputs: of the model, with their batch axes.
    """
    session, axes = _in_float32(source), [spec.batch_axis for spec in specs]
    run, total = session.run, min(batch_of(inputs, specs), TRIED)
    both = zip(inputs, axes, session.inputs, strict=True)
    few = [np.asarray(a if axis is None else a[along(axis, 0, total)], s.dtype) for a, axis, s in both]
    try:
        why = compare_with_parts(run, few, specs, outputs, 1)
        why = why or compare_with_parts(run, few, specs, outputs, -(-total // 2))
        if not why:
            turned = [a if axis is None else np.flip(a, axis).copy() for a, axis in zip(few, axes, strict=True)]
            why = _compared_turned(run(few), run(turned), outputs, total)
    except (EngineError, ModelError):
        return None
    return why


def _compared_turned(
    straight: Sequence[Array], turned: Sequence[Array], outputs: Sequence[TensorSpec], total: int
) -> str:
    """Return which output of the samples in reverse order is not the reverse output; "" if all are."""
    for output, want, got in zip(outputs, straight, turned, strict=True):
        axis = output.batch_axis
        has_rows = axis is not None and want.ndim > axis and want.shape[axis] == total
        if problem := difference(np.flip(want, axis) if has_rows else want, got, TOLERANCE):
            return f"output {output.name!r} changes with the order of the samples: {problem}"
    return ""


def _compared_whole(session: HostSession, plan: Plan, inputs: list[Array], specs: Sequence[TensorSpec]) -> str | None:
    """Compare the whole call with parts of it, and one sample with several; ``None`` if the model refuses either."""
    total, rows = batch_of(inputs, specs), plan.key.rows
    arrays = [np.asarray(a, s.dtype) for a, s in zip(inputs, session.inputs, strict=True)]
    try:
        why = compare_with_parts(session.run, arrays, specs, plan.outputs, rows if rows < total else -(-total // 2))
        if total == 1 and rows > 1 and not why:
            why = compare_with_parts(session.run, arrays, specs, plan.outputs, rows)
    except EngineError:  # there is nothing to compare
        return None
    return why


def _in_float32(source: Lowering) -> HostSession:
    from engine.sdaa.float16 import resolved

    weights, model = source.weights, _float32(source.model)
    return HostSession(model, weights=resolved(model, weights))


def _float32(model: ModelProto) -> ModelProto:
    from onnx import TensorProto

    from engine.onnx.view import tensors
    from engine.onnx.widen import widen

    halves = any(tensor.data_type == TensorProto.FLOAT16 for tensor in tensors(model.graph))
    inputs = any(info.type.tensor_type.elem_type == TensorProto.FLOAT16 for info in model.graph.input)
    return widen(model) if halves or inputs else model
