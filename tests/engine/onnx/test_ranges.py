"""Values of random graphs, computed by ONNX Runtime, lie in the computed ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given, settings, strategies as st
from number_graphs import BINARY, FLOAT_BINARY, FLOAT_UNARY, UNARY, Plan, graph_of
from onnx import TensorProto

from engine.onnx.range_rules import WHOLE, Range
from engine.onnx.ranges import Assumed, Step, steps
from engine.onnx.shapes import infer_shapes
from engine.onnx.table_indices import index_bounds, random_input_bounds, sizing_inputs

BOUND = 1000


def computed(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, {"x": x}), strict=True))


def found_in(model: onnx.ModelProto, bound: Range) -> list[Step]:
    return steps(infer_shapes(model).graph, Assumed({"x": bound}, 2**20, 2**20))


PLANS = st.lists(
    st.tuples(st.sampled_from((*BINARY, *UNARY)), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6
)


@settings(max_examples=25)
@given(
    plan=PLANS,
    constants=st.lists(st.integers(-2000, 2000).filter(bool), min_size=2, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_lie_in_their_ranges(plan: Plan, constants: list[int], seed: int) -> None:
    """Unless a type overflowed; divisors are constants, because 0 would crash the process."""
    plan = [(op, a, 1 + b % len(constants)) if op in ("Div", "Mod") else (op, a, b) for op, a, b in plan]
    model = graph_of(plan, TensorProto.INT64, constants, (3, 4))
    x = np.random.default_rng(seed).integers(-BOUND, BOUND, (3, 4), endpoint=True)
    values = computed(model, x)
    for step in found_in(model, Range(-BOUND, BOUND)):
        (name,) = step.node.output
        if not step.outputs[0].within(*WHOLE[TensorProto.INT64]):
            return
        assert step.outputs[0].low <= values[name].min()
        assert values[name].max() <= step.outputs[0].high


FLOAT_PLANS = st.lists(
    st.tuples(st.sampled_from((*FLOAT_BINARY, *FLOAT_UNARY)), st.integers(0, 20), st.integers(0, 20)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25)
@example([("Tanh", 1, 0), ("Div", 3, 2)], [0.0, 1e-45], 0)
@given(
    plan=FLOAT_PLANS,
    constants=st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_nan_only_appears_where_predicted(plan: Plan, constants: list[float], seed: int) -> None:
    """For floats of moderate size: the first node with NaN or an infinity is one with ``makes_nan``."""
    model = graph_of(plan, TensorProto.FLOAT, constants, (3, 4))
    x = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32) * np.float32(5)
    values = computed(model, x)
    for step in found_in(model, Range(-np.inf, np.inf)):
        (name,) = step.node.output
        value = values[name]
        if not np.isfinite(value).all():
            assert step.makes_nan
            return
        slack = 1e-5 * float(np.abs(value).max(initial=1))
        assert step.outputs[0].low - slack <= float(value.min())  # a bound may be beyond float32
        assert float(value.max()) <= step.outputs[0].high + slack
        if np.abs(value).max() > 1e15:
            return


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("y = Gather(t, x)", {"x": 8}),
        ("r = Reshape(x, n)\n y = Gather(t, r)", {"x": 8}),
        ("i = Cast <to = 6> (x)\n y = Gather(t, i)", {"x": 8}),
        ("s = Split <axis = 0> (x)\n y = Gather(t, s)", {"x": 8}),
        ("a = Gather(t, x)\n b = Gather(u, x)\n y = Add(a, b)", {"x": 4}),
        ("y = Gather <axis = 1> (v, x)", {"x": 3}),
        ("h = Add(x, x)\n y = Gather(t, h)", {}),
        ("y = Cast <to = 1> (x)", {}),
    ],
)
def test_index_bounds(body: str, rows: dict[str, int]) -> None:
    weights = "float[8] t = {0,1,2,3,4,5,6,7}, float[4] u = {0,1,2,3}, float[2,3] v = {0,1,2,3,4,5}, int64[1] n = {6}"
    model = parsed(f"g (int64[6] x) => (float[M] y) <{weights}> {{ {body} }}")
    assert index_bounds(infer_shapes(model).graph) == rows
    drawn = random_input_bounds(model)["x"]
    assert drawn == (0, rows["x"] - 1) if rows else drawn[0] < -1000


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = Expand(w, x)", {"x"}),
        ("a = Add(x, x)\n y = Expand(w, a)", {"x"}),
        ("y = ConstantOfShape(x)", {"x"}),
        ("f = Cast <to = 1> (x)\n y = Mul(f, w)", set()),
        ("s = Shape(x)\n y = Expand(w, s)", set()),
    ],
)
def test_sizing_inputs(body: str, found: set[str]) -> None:
    model = parsed(f"g (int64[1] x) => (float[M] y) <float[1] w = {{1}}> {{ {body} }}")
    assert sizing_inputs(model.graph) == found
    assert set(random_input_bounds(model)) == {"x"} - found
