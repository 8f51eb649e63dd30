"""Random graphs of operators on one type of numbers, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Div", "Mod")
UNARY = ("Neg", "Abs", "Identity", "Sign", "Clip", "CumSum", "ReduceSum", "ReduceMax", "ReduceProd")
FLOAT_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
FLOAT_UNARY = (
    "Neg",
    "Abs",
    "Sqrt",
    "Exp",
    "Sigmoid",
    "Tanh",
    "Relu",
    "Floor",
    "Reciprocal",
    "Pow",
    "Softmax",
    "ReduceMean",
)

Plan = list[tuple[str, int, int]]


def graph_of(plan: Plan, kind: int, constants: Sequence[Any], shape: tuple[int, int]) -> onnx.ModelProto:
    """Return a model of one input ``x`` whose nodes read earlier tensors, all of which are outputs.

    Args:
        plan: for each node its operator and which tensors it reads: 0 is the input, then come the constants, then the
            nodes before. kind: the type of all numbers. constants: what the constants are filled with.
    """
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    names = ["x", *(f"c{i}" for i in range(len(constants)))]
    weights = [numpy_helper.from_array(np.full(shape, c, dtype), f"c{i}") for i, c in enumerate(constants)]
    extra = {"low": np.array(1, dtype), "high": np.array(7, dtype), "axis": np.array(1, np.int64)}
    extra |= {"axes": np.array([1], np.int64), "two": np.array(2, dtype)}
    weights += [numpy_helper.from_array(value, name) for name, value in extra.items()]
    more = {"Clip": ["low", "high"], "CumSum": ["axis"], "ReduceSum": ["axes"], "Pow": ["two"]}
    nodes = []
    for i, (op, a, b) in enumerate(plan):
        left, right = names[a % len(names)], names[b % len(names)]
        inputs = [left, right] if op in BINARY or op in FLOAT_BINARY else [left, *more.get(op, [])]
        attributes = {"axes": [1]} if op in ("ReduceMax", "ReduceProd", "ReduceMean") else {}
        if op == "Mod" and np.dtype(dtype).kind == "f":
            attributes = {"fmod": 1}
        nodes.append(helper.make_node(op, inputs, [f"n{i}"], **attributes))  # type: ignore[arg-type]
        names.append(f"n{i}")
    outputs = [helper.make_tensor_value_info(f"n{i}", kind, None) for i in range(len(plan))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, shape)], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
