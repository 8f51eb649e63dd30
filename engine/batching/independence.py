"""Whether a model's samples depend on one another, from its graph, and how much two outputs differ.

:mod:`engine.batching.batch` compares the outputs of calls where the graph does not decide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.signature import Array, BatchAxes

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
