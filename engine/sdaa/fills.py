"""Fill values of masks that exceed float16: replaced by its largest finite value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from engine.onnx.large import put_array

LARGEST = float(np.finfo(np.float16).max)


def hold_fills(graph: GraphProto, keep: Callable[[NodeProto], bool] | None) -> bool:
    """Change a graph in place so that values filled in by its Where nodes are finite in float16 if they are in float32.

    Return whether it was changed.

    Models mask scores with the lowest finite value of the dtype, -3.4e38 in float32 and -65504 in float16. As minus
    infinity it would make a softmax over a fully masked row NaN.

    Args:
        graph: float32, nodes in topological order. keep: returns whether a node stays float32.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None:
            constants[node.output[0]] = value
    held: dict[str, str] = {}
    for node in graph.node:
        for i in (1, 2) if node.op_type == "Where" and not (keep and keep(node)) else ():
            tensor = constants.get(node.input[i])
            if tensor is not None and node.input[i] not in held:
                held[node.input[i]] = _held(graph, node.input[i], tensor)
            node.input[i] = held.get(node.input[i], node.input[i])
    return any(name != replaced for name, replaced in held.items())


def _held(graph: GraphProto, name: str, tensor: TensorProto) -> str:
    """Return the name of a constant with its finite values clipped to float16's range, its own if they are in it."""
    if tensor.data_type != TensorProto.FLOAT or tensor.data_location == TensorProto.EXTERNAL:
        return name
    values = numpy_helper.to_array(tensor)
    clipped = np.where(np.isfinite(values), values.clip(-LARGEST, LARGEST), values).astype(np.float32)
    if np.array_equal(values, clipped, equal_nan=True):
        return name
    put_array(graph.initializer.add(), clipped, f"{name}:held")
    return f"{name}:held"
