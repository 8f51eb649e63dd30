"""Numerical test of sample independence, for models where the graph analysis is inconclusive.

A single call cannot prove independence; it reveals dependence if the samples differ, as real inputs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.batching import RANDOM
from engine.batching.shard import Run, along, has_batch, split
from engine.signature import Array, BatchAxes, TensorSpec, batch_of
from tecoinfer_modelzoo.errors import EngineError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TOLERANCE = 1e-4
"""Maximum difference of a sample's outputs relative to the output's largest magnitude; float32 rounding stays below."""


def batching_of(model: ModelProto, axes: Mapping[str, int]) -> BatchAxes:
    """Return the batch axes of a model (``axes``: known ones); samples that share random numbers count as dependent."""
    from engine.batching.find import find_batching

    found = find_batching(model, axes or None)
    if found.independent is None and draws_random(model):
        return BatchAxes(found.inputs, found.outputs, False, "the model draws random numbers")
    return found


def draws_random(model: ModelProto) -> bool:
    """Return whether a model, its functions or its subgraphs contain an operator that draws random numbers."""
    from engine.onnx.view import subgraphs

    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        if node.op_type in RANDOM or _is_training(node):
            return True
        waiting += [inner for graph in subgraphs(node) for inner in graph.node]
    return False


def _is_training(node: NodeProto) -> bool:
    """Return whether a node is a Dropout with a ``training_mode`` input."""
    return node.op_type == "Dropout" and bool(list(node.input)[2:])


def compare_with_parts(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Run a call whole and in padded parts of ``size`` samples; describe the difference of the results, "" for none."""
    whole, total = run(inputs), batch_of(inputs, specs)
    parts = [run(part) for part in split(inputs, [spec.batch_axis for spec in specs], total, size)]
    problems = (
        (output.name, _compare_pieces(want, [part[i] for part in parts], output.batch_axis, total, size))
        for i, (output, want) in enumerate(zip(outputs, whole, strict=True))
    )
    return next((f"output {name!r} {problem}" for name, problem in problems if problem), "")


def _compare_pieces(want: Array, pieces: list[Array], axis: int | None, total: int, size: int) -> str:
    """Describe the difference of one output between the whole call and its parts, "" for none."""
    if axis is None or not has_batch(want, axis, total):
        same = not any(difference(want, piece, TOLERANCE) for piece in pieces)
        return "" if same else "has no row per sample, and differs between the whole call and its parts"
    if not all(has_batch(piece, axis, size) for piece in pieces):
        return f"has no dimension of size {size} for {size} input samples"
    problem = difference(want, np.concatenate(pieces, axis)[along(axis, None, total)], TOLERANCE)
    return f"differs between the whole call and its parts: {problem}" if problem else ""


def compare_with_changed(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Replace samples by copies of another, and name an output of the other samples that changes, "" for none.

    For models with a fixed batch ``size`` of at least 2, which cannot run parts; fewer samples are repeated.
    """
    places = np.arange(size)
    inputs = [_take(a, s.batch_axis, places % batch_of(inputs, specs)) for a, s in zip(inputs, specs, strict=True)]
    before = run(inputs)
    for kept in (places < size // 2, places >= size // 2, places % 2 == 0, places % 2 == 1):
        source = np.where(kept, places, places[kept][0])
        try:
            after = run([_take(array, spec.batch_axis, source) for array, spec in zip(inputs, specs, strict=True)])
        except EngineError:  # such as input values that determine a shape
            return "a call with permuted samples cannot be computed"
        for output, want, got in zip(outputs, before, after, strict=True):
            axis = output.batch_axis
            if axis is None or not has_batch(want, axis, size):
                if difference(want, got, TOLERANCE):
                    return f"output {output.name!r} has no row per sample, and changes with the samples"
                continue
            problem = difference(_take(want, axis, places[kept]), _take(got, axis, places[kept]), TOLERANCE)
            if problem:
                return f"output {output.name!r} of a sample changes with the other samples: {problem}"
    return ""


def tells(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> bool:
    """Return whether a call can reveal dependence: it has two different samples."""
    return any(
        spec.batch_axis is not None and not np.array_equal(array, np.roll(array, 1, spec.batch_axis))
        for array, spec in zip(inputs, specs, strict=True)
    )


def _take(array: Array, axis: int | None, places: Array) -> Array:
    return array if axis is None else np.take(array, places, axis)


def difference(want: Array, got: Array, tolerance: float) -> str:
    """Describe the difference of two arrays, "" if they agree.

    Floats agree if |got - want| is at most ``tolerance`` times the largest finite |want|, with equal NaN and
    infinities.
    """
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype}{list(want.shape)} became {got.dtype}{list(got.shape)}"
    if want.dtype.kind != "f":
        wrong = int(np.count_nonzero(want != got))
        return f"{wrong} of {want.size} values differ" if wrong else ""
    finite = np.isfinite(want)
    if not np.array_equal(np.where(finite, 0, want), np.where(np.isfinite(got), 0, got), equal_nan=True):
        return "NaN or infinite values differ"
    exact, found = want[finite].astype(np.float64), got[finite].astype(np.float64)
    scale = np.abs(exact).max(initial=0.0)
    error = np.abs(found - exact).max(initial=0.0)
    large = error > tolerance * scale
    return f"largest error {error:.3g} at values up to {scale:.3g}, above {tolerance:g} of them" if large else ""
