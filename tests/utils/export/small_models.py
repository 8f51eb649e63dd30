"""A small model for several tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
X = np.array([[0.5, -1.0, 2.0]], np.float32)


def linear(weight: np.ndarray = WEIGHT, op: str = "MatMul", domain: str = "") -> onnx.ModelProto:
    node = helper.make_node(op, ["input", "weight"], ["output"], domain=domain)
    value = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3])
    answer = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([node], "linear", [value], [answer], [numpy_helper.from_array(weight, "weight")])
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
