"""Recurrent layers on TVM, as loops over the time steps, compute what ONNX Runtime computes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from engine.backends import HostSession
from engine.backends.tvm_graph import check_operators, prepared
from engine.backends.tvm_runtime import Compiler
from engine.onnx import infer_shapes
from engine.onnx.recurrent import LOOP, MOST_STEPS, unrolled
from engine.passes.options import PassOptions
from tests.engine.onnx.recurrent_layers import STEPS, layer

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")

LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"direction": "bidirectional", "initial": True, "lengths": True}),
    ("LSTM", {"steps": 1}),
    ("LSTM", {"steps": 40, "samples": 8, "hidden": 48, "direction": "reverse", "bias": False}),  # divided among threads
    ("GRU", {"direction": "bidirectional", "initial": True, "lengths": True}),
    ("GRU", {"linear_before_reset": 1, "bias": False, "hidden": 7}),
    ("GRU", {"linear_before_reset": 1, "steps": 40, "samples": 8, "hidden": 48, "direction": "bidirectional"}),
    ("RNN", {"direction": "bidirectional", "initial": True, "lengths": True, "hidden": 5}),
]


@needs_tvm
@pytest.mark.parametrize(("op", "options"), LAYERS)
def test_loops(op: str, options: dict[str, Any]) -> None:
    model = infer_shapes(layer(op, **options))
    rng = np.random.default_rng(3)
    session = HostSession(model)
    feed = [rng.normal(size=session.inputs[0].shape).astype(np.float32)]
    feed += [np.array([STEPS, 1, 3], np.int32)] * bool(options.get("lengths"))
    shapes = {tensor.name: given.shape for tensor, given in zip(session.inputs, feed, strict=True)}
    compiler = Compiler()
    made = prepared(model, PassOptions(), shapes, loops=True).model
    assert sum(node.op_type == LOOP for node in made.graph.node) == 1 + (options.get("direction") == "bidirectional")
    library, divided = compiler.build(made)
    assert divided == (options.get("samples") == 8)
    got = compiler.session(library)(feed, 2 * divided)
    for want, found in zip(session.run(feed), got, strict=True):
        assert want.shape == found.shape
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("options", "loops"),
    [
        ({}, 1),
        ({"steps": MOST_STEPS + 1}, 1),
        ({"peepholes": True}, 0),
        ({"input_forget": 1}, 0),
        ({"activations": ["Sigmoid", "Relu", "Softsign"]}, 0),
    ],
)
def test_layers_that_have_a_loop(options: dict[str, Any], loops: int) -> None:
    model = unrolled(infer_shapes(layer("LSTM", **options)), loops=True)
    assert sum(node.op_type == LOOP for node in model.graph.node) == loops
    check_operators(model)
