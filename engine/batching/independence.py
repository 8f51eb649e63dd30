"""Do a call's samples depend on one another? Found out by computing, where the graph alone does not tell.

One call proves nothing for all; it shows dependence where it is there and the numbers differ, as real inputs' do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.batching.shard import Run, along, has_batch, split
from engine.signature import Array, BatchAxes, TensorSpec, batch_of
from tecoinfer_modelzoo.errors import EngineError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TOLERANCE = 1e-4
"""Largest difference of one sample's outputs, as a part of the output's largest magnitude: float32 rounding in another
order stays far below."""

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that draw random numbers: two runs of them cannot be compared."""


def batching_of(model: ModelProto, axes: Mapping[str, int]) -> BatchAxes:
    """Return what a graph says of its batch; samples that share random numbers count as dependent.

    Args:
        model: the model. axes: batch axes that are known, by input.
    """
    from engine.batching.find import find_batching

    found = find_batching(model, axes or None)
    if found.independent is None and draws_random(model):
        return BatchAxes(found.inputs, found.outputs, False, "the model draws random numbers")
    return found


def draws_random(model: ModelProto) -> bool:
    """Say whether a model holds an operator that draws random numbers, in its functions and subgraphs too."""
    from engine.onnx.view import subgraphs

    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        if node.op_type in RANDOM or _is_training(node):
            return True
        waiting += [inner for graph in subgraphs(node) for inner in graph.node]
    return False


def _is_training(node: NodeProto) -> bool:
    """Say whether a node is a dropout that may be told to drop: its third input says so."""
    return node.op_type == "Dropout" and bool(list(node.input)[2:])


def compare_with_parts(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Run a call whole and in padded parts of ``size`` samples, and say in what the results differ ("": in nothing).

    Args:
        run: computes a call of any number of samples.
        inputs, specs, outputs: the call's arrays, and the graph's tensors.
        size: samples of a part.
    """
    whole, total = run(inputs), batch_of(inputs, specs)
    parts = [run(part) for part in split(inputs, [spec.batch_axis for spec in specs], total, size)]
    problems = (
        (output.name, _compare_pieces(want, [part[i] for part in parts], output.batch_axis, total, size))
        for i, (output, want) in enumerate(zip(outputs, whole, strict=True))
    )
    return next((f"output {name!r} {problem}" for name, problem in problems if problem), "")


def _compare_pieces(want: Array, pieces: list[Array], axis: int | None, total: int, size: int) -> str:
    """Say in what one output of a whole call differs from those of its parts ("": in nothing)."""
    if axis is None or not has_batch(want, axis, total):
        same = not any(difference(want, piece, TOLERANCE) for piece in pieces)
        return "" if same else "has no row per sample, and that of a whole call is not that of its parts"
    if not all(has_batch(piece, axis, size) for piece in pieces):
        return f"has no dimension of {size} samples where {size} go in"
    problem = difference(want, np.concatenate(pieces, axis)[along(axis, None, total)], TOLERANCE)
    return f"of a whole call is not that of its parts: {problem}" if problem else ""


def compare_with_changed(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Put one sample in the place of others, and say which output of the untouched ones changes ("": none).

    For models of a fixed batch, which cannot run a part of it.

    Args:
        run: computes exactly ``size`` samples.
        inputs, specs, outputs: a call, and the graph's tensors; fewer than ``size`` samples are repeated in turn.
        size: samples that ``run`` takes, at least 2.
    """
    places = np.arange(size)
    inputs = [_taken(a, s.batch_axis, places % batch_of(inputs, specs)) for a, s in zip(inputs, specs, strict=True)]
    before = run(inputs)
    for kept in (places < size // 2, places >= size // 2, places % 2 == 0, places % 2 == 1):
        source = np.where(kept, places, places[kept][0])
        try:
            after = run([_taken(array, spec.batch_axis, source) for array, spec in zip(inputs, specs, strict=True)])
        except EngineError:  # such as values that are a shape
            return "a call in which samples change places cannot be computed"
        for output, want, got in zip(outputs, before, after, strict=True):
            axis = output.batch_axis
            if axis is None or not has_batch(want, axis, size):
                if difference(want, got, TOLERANCE):
                    return f"output {output.name!r} has no row per sample, and changes with the samples"
                continue
            problem = difference(_taken(want, axis, places[kept]), _taken(got, axis, places[kept]), TOLERANCE)
            if problem:
                return f"output {output.name!r} of a sample changes with the samples beside it: {problem}"
    return ""


def tells(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> bool:
    """Say whether a call can show dependence at all: it has two samples that are not the same."""
    return any(
        spec.batch_axis is not None and not np.array_equal(array, np.roll(array, 1, spec.batch_axis))
        for array, spec in zip(inputs, specs, strict=True)
    )


def _taken(array: Array, axis: int | None, places: Array) -> Array:
    return array if axis is None else np.take(array, places, axis)


def difference(want: Array, got: Array, tolerance: float) -> str:
    """Say in what two arrays differ, or return "" where they agree.

    Floats agree when |got - want| is at most ``tolerance`` times the largest finite |want| everywhere, with NaN and
    infinities in the same places; everything else agrees only when equal.
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
    return (
        f"largest error {error:.3g} at values up to {scale:.3g}, above {tolerance:g} of them"
        if error > tolerance * scale
        else ""
    )
