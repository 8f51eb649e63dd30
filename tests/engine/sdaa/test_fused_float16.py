"""A kernel rounds once, at its end: compared with numpy in float32, rounded once where the card rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from engine.backends.ort import HostSession
from engine.sdaa.float16 import float16_storage

Array = np.ndarray[Any, np.dtype[Any]]


def run(nodes: list[onnx.NodeProto], x: Array, outputs: tuple[str, ...] = ("y",), **weights: Array) -> list[Array]:
    """Run nodes on float16 input ``x`` as the card does."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return HostSession(float16_storage(model)).run([x.astype(np.float16)])


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


SUM = np.ones((3, 1))
"""A weight that adds three inputs up."""
ODD = np.array([[2048.0, 1.0, 0.0]])
"""The sum is 2049, which float16 rounds to 2048: subtracting 2048 shows where it was rounded."""
BACK = np.array([-2048.0])

PRODUCTS = {
    "MatMul": ([node("MatMul", "x w", "a")], {"w": SUM}, ODD),
    "Gemm": ([node("Gemm", "x w", "a")], {"w": SUM}, ODD),
    "Conv": ([node("Conv", "x w", "a")], {"w": SUM.T.reshape(1, 3, 1)}, ODD.reshape(1, 3, 1)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    ("tail", "answer"),
    [
        ([node("Add", "a b", "y")], 1.0),
        ([node("Add", "b a", "y")], 1.0),
        ([node("Add", "a b", "s"), node("Sigmoid", "s", "y")], float(np.float16(1 / (1 + np.exp(-1.0))))),
        ([node("Add", "a b", "s"), node("Relu", "s", "y")], 1.0),
        ([node("Add", "a b", "s"), node("Mul", "s b", "y")], -2048.0),
        ([node("Add", "a b", "s"), node("Exp", "s", "y")], float(np.float16(np.exp(1.0)))),
        ([node("Relu", "a", "r"), node("Add", "r b", "y")], 0.0),  # a kernel ends with its activation
        ([node("Identity", "a", "r"), node("Add", "r b", "y")], 0.0),
        ([node("Sub", "a c", "y")], 0.0),
    ],
)
def test_rounding_points_of_a_kernel(name: str, tail: list[onnx.NodeProto], answer: float) -> None:
    head, weights, x = PRODUCTS[name]
    (y,) = run([*head, *tail], x, b=BACK, c=-BACK, **weights)
    assert y.dtype == np.float16
    assert float(y.ravel()[0]) == answer


@pytest.mark.parametrize("name", PRODUCTS)
def test_tensors_with_other_readers_are_not_fused(name: str) -> None:
    head, weights, x = PRODUCTS[name]
    y, a = run([*head, node("Add", "a b", "y")], x, ("y", "a"), b=BACK, **weights)
    assert (y.item(), a.item()) == (0, 2048)
    y, z = run([*head, node("Add", "a b", "y"), node("Neg", "a", "z")], x, ("y", "z"), b=BACK, **weights)
    assert (y.item(), z.item()) == (0, -2048)


def test_an_overflow_inside_a_kernel_is_not_rounded() -> None:
    x = np.array([[60000.0, 10000.0, 0.0]])
    head, weights, _ = PRODUCTS["MatMul"]
    (fused,) = run([*head, node("Add", "a b", "y")], x, b=np.array([-30000.0]), **weights)
    (apart,) = run([*head, node("Sub", "a b", "y")], x, b=np.array([30000.0]), **weights)
    assert (fused.item(), apart.item()) == (40000, np.inf)


TAILS: dict[str, Any] = {
    "Relu": lambda v: np.maximum(v, 0),
    "LeakyRelu": lambda v: np.where(v < 0, np.float32(0.25) * v, v),
    "HardSigmoid": lambda v: np.clip(np.float32(0.25) * v + np.float32(0.5), 0, 1),
    "Clip": lambda v: np.clip(v, -100, 100),
}
ATTRIBUTES: dict[str, dict[str, float]] = {"LeakyRelu": {"alpha": 0.25}, "HardSigmoid": {"alpha": 0.25, "beta": 0.5}}
wholes = st.integers(-2040, 2040)


@given(st.sampled_from(sorted(TAILS)), st.lists(wholes, min_size=6, max_size=6), wholes, st.integers(-8, 8))
@settings(deadline=None, max_examples=60)
def test_a_group_equals_float32_rounded_once(tail: str, values: list[int], bias: int, scale: int) -> None:
    """Whole numbers this small make every float32 step exact, so only the rounding at the end is left."""
    x, w = np.array([values[:3]], np.float32), np.array(values[3:], np.float32).reshape(3, 1) % 16
    limits = "lo hi" if tail == "Clip" else ""
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "s"), node("Mul", "s m", "t")]
    nodes.append(node(tail, f"t {limits}", "y", **ATTRIBUTES.get(tail, {})))
    constants = {"lo": -100.0, "hi": 100.0} if tail == "Clip" else {}
    (y,) = run(nodes, x, w=w, b=np.array([bias]), m=np.array([scale]), **constants)  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        wanted = TAILS[tail]((x @ w + np.float32(bias)) * np.float32(scale)).astype(np.float16)
    np.testing.assert_array_equal(y, wanted)
