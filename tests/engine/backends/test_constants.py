"""Nodes that follow from constants and shapes are constants, with the values that ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine.backends import HostSession
from engine.backends.constants import with_constants
from engine.onnx import bind_shapes


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)


def values(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_shapes_and_what_is_computed_of_them() -> None:
    model = model_of(
        """g (float[N,S,6] x) => (float[M,3] y) {
            shape = Shape(x) rows = Gather(shape, zero) three = Constant<value_ints=[3]>()
            minus = Constant<value_ints=[-1]>() size = Concat<axis=0>(minus, three) y = Reshape(x, size)
            zero = Constant<value_ints=[0]>()
        }"""
    )
    model.graph.node.sort(key=lambda node: node.op_type != "Constant")
    bound = bind_shapes(model, {"x": (2, 4, 6)})
    made = with_constants(bound)
    assert [node.op_type for node in made.graph.node] == ["Reshape"]
    assert [value.tolist() for value in values(made).values()] == [[-1, 3]]
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    assert np.array_equal(HostSession(made).run([x])[0], HostSession(model).run([x])[0])


def test_tables_of_positions_are_computed_once() -> None:
    model = model_of(
        """g (float[N,S] x) => (float[N,S] y) {
            zero = Constant<value_int=0>() one = Constant<value_int=1>() shape = Shape(x) s = Gather(shape, one)
            at = Range(zero, s, one) floats = Cast<to=1>(at) waves = Sin(floats) y = Add(x, waves)
        }"""
    )
    made = with_constants(bind_shapes(model, {"x": (1, 5)}))
    assert [node.op_type for node in made.graph.node] == ["Add"]
    [table] = values(made).values()
    np.testing.assert_allclose(table, np.sin(np.arange(5)), atol=1e-6)


def test_constant_outputs_and_unread_nodes() -> None:
    model = model_of(
        """g (float[N,2] x) => (float[N,2] y, float[1] z) {
            a = Constant<value_floats=[2.0]>() z = Mul(a, a) unread = Exp(x) y = Relu(x)
        }"""
    )
    made = with_constants(bind_shapes(model, {"x": (1, 2)}))
    assert [node.op_type for node in made.graph.node] == ["Relu"]
    assert values(made)["z"].tolist() == [4.0]


def test_random_numbers_and_large_tables_stay_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.constants.MOST_BYTES", 64)
    model = model_of(
        """g (float[N,2] x) => (float[N,2] y, float[1,2] r, float[100] t) {
            r = RandomNormal<shape=[1,2]>() y = Relu(x)
            size = Constant<value_ints=[100]>() one = Constant<value_floats=[1.0]>() t = Expand(one, size)
        }"""
    )
    made = with_constants(bind_shapes(model, {"x": (1, 2)}))
    assert {node.op_type for node in made.graph.node} == {"Relu", "RandomNormal", "Expand"}


def test_the_model_is_not_changed() -> None:
    model = bind_shapes(model_of("g (float[N,2] x) => (int64[2] y) { y = Shape(x) }"), {"x": (3, 2)})
    before = model.SerializeToString()
    assert values(with_constants(model))["y"].tolist() == [3, 2]
    assert model.SerializeToString() == before
