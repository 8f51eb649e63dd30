"""Clean-up of third-party ONNX files: equal outputs under other names and sizes, or a one-line error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper

from engine import ModelError
from utils.export.imported import OPSET, cleaned

INPUTS = {"input.1": ("input", ("N", 2, "H", "W"))}
OUTPUTS = {"8": ("sure", ("N", 3, "H", "W")), "7": ("maps", ("N", 3, "H", "W"))}


def old() -> ModelProto:
    """Return a model as old PyTorch exported it, with weights and an unused value among the inputs."""
    chance = np.random.default_rng(0)
    held = {"weight": chance.normal(size=(3, 2, 3, 3)).astype(np.float32), "bias": np.ones(3, np.float32)}
    held |= {"batches": np.zeros(1, np.int64)}
    weights = [numpy_helper.from_array(value, name) for name, value in held.items()]
    nodes = [
        helper.make_node("Conv", ["input.1", "weight", "bias"], ["6"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["6"], ["7"]),
        helper.make_node("Sigmoid", ["6"], ["8"]),
    ]
    inputs = [helper.make_tensor_value_info("input.1", 1, [5, 2, 4, 4])]
    inputs += [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in weights]
    outputs = [helper.make_tensor_value_info(name, 1, [5, 3, 4, 4]) for name in ("7", "8")]
    graph = helper.make_graph(nodes, "old", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)


def answers(model: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {session.get_inputs()[0].name: x})
    return found


def test_outputs_are_equal_under_other_names_and_sizes() -> None:
    before = old()
    bytes_before = before.SerializeToString()
    made = cleaned(before, INPUTS, OUTPUTS)
    assert before.SerializeToString() == bytes_before
    assert [value.name for value in made.graph.input] == ["input"]
    assert [value.name for value in made.graph.output] == ["sure", "maps"]
    assert made.opset_import[0].version == OPSET
    onnx.checker.check_model(made, full_check=True)
    x = np.random.default_rng(1).normal(size=(5, 2, 4, 4)).astype(np.float32)
    maps, sure = answers(before, x)
    for a, b in zip(answers(made, x), (sure, maps), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert answers(made, np.zeros((1, 2, 6, 9), np.float32))[0].shape == (1, 3, 6, 9)


def test_fixed_sizes() -> None:
    made = cleaned(old(), {"input.1": ("input", (1, 2, 8, 6))}, {"7": ("maps", (1, 3, 8, 6))})
    assert [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim] == [1, 2, 8, 6]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (INPUTS, {"9": ("x", ("N", 3, "H", "W"))}, "'9' among 7, 8"),
        ({"x": ("y", (1, 2, 4, 4))}, OUTPUTS, "needs the input 'input.1' too"),
        (INPUTS, {"7": ("6", ("N", 3, "H", "W"))}, "has a value named '6' already"),
        (INPUTS, {"7": ("maps", ("N", 4, "H", "W"))}, "cannot be rewritten: "),
    ],
)
def test_mismatches_raise(inputs: Mapping[str, Any], outputs: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        cleaned(old(), inputs, outputs)
    assert "\n" not in str(caught.value)
