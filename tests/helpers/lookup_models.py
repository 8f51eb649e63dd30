"""A model of a table lookup and a matrix product; the table is its only large weight."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


def lookup_model(table: TensorProto, held: str = "initializer") -> ModelProto:
    """Return ``y = float(table[i]) @ eye``, whose first four columns are ``y``.

    Args:
        table: ``table``, rows x width. held: where it lies, as an ``initializer`` or in a Constant ``node``.
    """
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.eye(table.dims[1], 4, dtype=np.float32), "w")]
    if held == "node":
        nodes.insert(0, helper.make_node("Constant", [], ["table"], value=table))
    else:
        weights.append(table)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
