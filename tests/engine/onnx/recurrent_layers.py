"""Models of one recurrent layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine.onnx.recurrent import GATES

STEPS, SAMPLES, FEATURES, HIDDEN = 5, 3, 4, 6


def layer(
    op: str,
    *,
    direction: str = "forward",
    bias: bool = True,
    initial: bool = False,
    lengths: bool = False,
    peepholes: bool = False,
    steps: int = STEPS,
    samples: int = SAMPLES,
    hidden: int = HIDDEN,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one recurrent node with random weights, and all of its outputs."""
    rng = np.random.default_rng(4)
    sides, width = 2 if direction == "bidirectional" else 1, GATES[op] * hidden
    weights: dict[str, tuple[int, ...]] = {"w": (sides, width, FEATURES), "r": (sides, width, hidden)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, samples, FEATURES])]
    names = ["x", "w", "r", "", "", "", "", ""]
    if bias:
        names[3], weights["b"] = "b", (sides, 2 * width)
    if lengths:
        names[4] = "lengths"
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [samples]))
    if initial:
        names[5], weights["h"] = "h", (sides, samples, hidden)
        if op == "LSTM":
            names[6], weights["c"] = "c", (sides, samples, hidden)
    if peepholes:
        names[7], weights["p"] = "p", (sides, 3 * hidden)
    while not names[-1]:
        names.pop()
    outputs = ["y", "y_h", *(["y_c"] if op == "LSTM" else [])]
    node = helper.make_node(op, names, outputs, "layer", hidden_size=hidden, direction=direction, **attributes)
    drawn = {name: rng.normal(size=s) / np.sqrt(hidden) for name, s in weights.items()}  # not chaotic
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in drawn.items()]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", inputs, ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
