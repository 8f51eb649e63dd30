"""Whether a model's samples depend on one another, from its graph, and how much two outputs differ.

:mod:`engine.batching.batch` compares the outputs of calls where the graph does not decide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.batching.random_operators import RANDOM
from engine.signature import Array, BatchAxes

if TYPE_CHECKING:
    from onnx import ModelProto

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
        training = node.op_type == "Dropout" and bool(list(node.input)[2:])  # an input ``training_mode``
        if node.op_type in RANDOM or training:
            return True
        waiting += [inner for graph in subgraphs(node) for inner in graph.node]
    return False


def difference(want: Array, got: Array, tolerance: float) -> str:
    """Describe the difference of two arrays, "" if they agree.

    Floats agree if |got - want| <= ``tolerance`` * the largest finite |want|, with equal NaN and infinities.
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
