"""Recurrent operators as plain ones compute what ONNX Runtime's own operators compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from engine import ModelError
from engine.backends import HostSession
from engine.onnx import infer_shapes
from engine.onnx.recurrent import MOST_STEPS, recurrent_operators, unrolled
from tests.engine.onnx.recurrent_layers import STEPS, layer


def check(model: onnx.ModelProto, lengths: np.ndarray | None = None) -> None:
    """Compare a model with its unrolled form on random input."""
    rng = np.random.default_rng(9)
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feed = [rng.normal(size=sizes).astype(np.float32), *([] if lengths is None else [lengths])]
    plain = unrolled(infer_shapes(model))
    assert not recurrent_operators(plain.graph.node)
    assert recurrent_operators(model.graph.node)
    wanted, got = HostSession(model).run(feed), HostSession(plain).run(feed)
    for want, found in zip(wanted, got, strict=True):
        assert want.shape == found.shape
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_directions_and_initial_states(op: str, initial: bool, direction: str) -> None:
    check(layer(op, direction=direction, initial=initial))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_samples_of_other_lengths(op: str, direction: str) -> None:
    model = layer(op, direction=direction, lengths=True, initial=True)
    check(model, np.array([STEPS, 1, 3], np.int32))


@pytest.mark.parametrize("linear_before_reset", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_reset_of_a_gru(linear_before_reset: int, bias: bool) -> None:
    check(layer("GRU", linear_before_reset=linear_before_reset, bias=bias, initial=True))


@pytest.mark.parametrize("op", ["LSTM", "RNN"])
def test_layers_without_bias(op: str) -> None:
    check(layer(op, bias=False))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_peepholes_and_coupled_gates(direction: str) -> None:
    check(layer("LSTM", peepholes=True, direction=direction, initial=True))
    check(layer("LSTM", input_forget=1, direction=direction))


@pytest.mark.parametrize(
    ("op", "activations"),
    [("LSTM", ["Sigmoid", "Relu", "Softsign"]), ("GRU", ["Sigmoid", "Softsign"]), ("RNN", ["Softplus"])],
)
def test_other_activations(op: str, activations: list[str]) -> None:
    check(layer(op, activations=activations))


def test_one_step() -> None:
    check(layer("LSTM", steps=1, direction="bidirectional"))


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"clip": 3.0}, "clip"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "HardSigmoid"),
        ({"steps": MOST_STEPS + 1}, str(MOST_STEPS)),
    ],
)
def test_what_is_not_supported_is_refused_by_name(attributes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named) as refused:
        unrolled(infer_shapes(layer("LSTM", **attributes)))
    assert "\n" not in str(refused.value)


def test_unknown_time_steps_are_refused() -> None:
    model = layer("GRU")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    with pytest.raises(ModelError, match="time steps"):
        unrolled(infer_shapes(model))


def test_a_model_without_them_is_returned_as_it_is() -> None:
    graph = onnx.parser.parse_graph("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert unrolled(model) is model
