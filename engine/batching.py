"""STAND-IN, to be replaced by the real analysis when the branches are merged: which dimension of a model is its batch.

Same interface as the real one. It goes by the declared shapes, and calls nothing proven where an operator stands that
may mix samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto

from engine.onnx_graph import dims, graph_inputs
from engine.signature import axis_of, batch_axes

_MIXING = ("CumSum", "ReverseSequence", "Slice", "Random", "Bernoulli", "Multinomial")


@dataclass(frozen=True)
class Batching:
    """Where the batch is, and whether samples are independent of one another.

    Attributes:
        inputs, outputs: batch axis of each, in the graph's order; ``None``: no batch.
        proven: whether samples are known to be independent. depends: whether they certainly are not.
        reason: why they are not, or why it is not known.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    proven: bool
    depends: bool
    reason: str


def find_batching(model: ModelProto, axes: Mapping[str, int] | None = None) -> Batching:
    """Find the batch.

    Args:
        model: the model. axes: batch axes that are known, by input name.
    """
    infos = graph_inputs(model)
    shapes = [dims(info) for info in infos]
    found = batch_axes(shapes)
    if axes is not None:
        found = [axes.get(info.name) for info in infos]
    symbol = next((shape[axis] for shape, axis in zip(shapes, found, strict=True) if axis is not None), None)
    outputs = [axis_of(symbol, dims(info)) if isinstance(symbol, str) else None for info in model.graph.output]
    weights = {tensor.name for tensor in model.graph.initializer}
    doubts = [n.op_type for n in model.graph.node if n.op_type.startswith(_MIXING)]
    doubts += [n.op_type for n in model.graph.node for a in n.attribute if a.name == "axes" and 0 in a.ints]
    doubts += [n.op_type for n in model.graph.node if n.op_type == "MatMul" and not weights.intersection(n.input)]
    reason = f"{doubts[0]} may mix samples" if doubts else ""
    return Batching(tuple(found), tuple(axis or 0 for axis in outputs), not doubts, False, reason)
