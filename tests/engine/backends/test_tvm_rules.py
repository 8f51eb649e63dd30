"""Rewrites for TVM keep the values of ONNX Runtime, and report indices out of range. TVM is not needed here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine import ModelError
from engine.backends import HostSession
from engine.backends.tvm_graph import check_operators
from engine.backends.tvm_rules import INDEX_ERRORS, Rewriter
from engine.onnx import infer_shapes

X = np.array([[np.nan, -3, -1, -0.5, 0, 0.5, 1, 7, np.inf, -np.inf]], np.float32)
UNARY = ("Celu<alpha=2.0>", "Elu<alpha=0.5>", "HardSigmoid", "HardSwish", "Selu", "Sign", "Softplus", "ThresholdedRelu")
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def model_of(text: str, opset: int = 18) -> onnx.ModelProto:
    return infer_shapes(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'))


def check(text: str, *feed: np.ndarray, opset: int = 18) -> None:
    """Compare a rewritten graph, which has other operators, with the graph itself."""
    model = model_of(text, opset)
    wanted = HostSession(model).run(feed)
    before = [node.op_type for node in model.graph.node]
    made = Rewriter(model).rewritten()
    assert [node.op_type for node in made.graph.node] != before
    for want, got in zip(wanted, HostSession(made).run(feed), strict=False):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_number(op: str) -> None:
    check(f"g (float[1,10] x) => (float[1,10] y) {{ y = {op}(x) }}", X)


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(("low", "high"), [("low", "high"), ('""', "high"), ("low", '""'), ("high", "low")])
def test_clip(low: str, high: str, opset: int) -> None:
    text = f"g (float[1,10] x, float low, float high) => (float[1,10] y) {{ y = Clip(x, {low}, {high}) }}"
    check(text, X[:, :8].repeat(2, 1)[:, :10], np.array(-1, np.float32), np.array(2, np.float32), opset=opset)


def test_extremes_of_several_operands() -> None:
    text = (
        "g (float[1,10] x, float[1] a, float[10] b) => (float[1,10] y, float[1,10] z) { y = Max(x,a,b) z = Min(b,x,a) }"
    )
    check(text, X, np.zeros(1, np.float32), X[0, ::-1].copy())
    check("g (int64[3] x, int64[3] a) => (int64[3] y) { y = Max(x,a) }", np.array([1, 5, 3]), np.array([4, 2, 3]))


def test_a_sign_of_integers_is_left_alone() -> None:
    made = Rewriter(model_of("g (int64[3] x) => (int64[3] y) { y = Sign(x) }")).rewritten()
    assert [node.op_type for node in made.graph.node] == ["Sign"]


LOOKUPS = {
    "Gather": ("int64[3] i", "y = Gather(t, i)", [-4, 3, 0], [4, 0, 0]),
    "Gather of axis 1": ("int32[3] i", "y = Gather<axis=1>(t, i)", [-3, 2, 0], [0, 0, -4]),
    "GatherElements": ("int64[1,3] i", "y = GatherElements(t, i)", [[-4, 3, 0]], [[0, 4, 0]]),
    "GatherND": ("int64[2,2] i", "y = GatherND(t, i)", [[-4, 2], [3, -3]], [[0, 3], [0, 0]]),
    "ScatterND": ("int64[2,1] i", "y = ScatterND(t, i, u)", [[-4], [3]], [[4], [0]]),
    "ScatterElements": (
        "int64[2,3] i",
        "y = ScatterElements(t, i, u)",
        [[0, 3, -4], [1, 0, 2]],
        [[0, 9, 0], [0, 0, 0]],
    ),
}
"""Name -> declared indices, the node, valid indices, and indices of which one is out of range."""


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_are_kept_in_their_table_and_reported(name: str, opset: int) -> None:
    declared, node, valid, outside = LOOKUPS[name]
    text = f"g (float[4,3] t, float[2,3] u, {declared}) => (float y) {{ {node} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model = infer_shapes(model)
    model.graph.node[0].name = "lookup"
    dtype = np.int32 if "int32" in declared else np.int64
    updates = np.full((2, 3), 9, np.float32)
    wanted = HostSession(model).run([TABLE, updates, np.array(valid, dtype)])
    rewriter = Rewriter(model)
    session = HostSession(rewriter.rewritten())
    assert rewriter.guarded == ["lookup"]
    assert [tensor.name for tensor in session.outputs] == ["y", INDEX_ERRORS]
    got, errors = session.run([TABLE, updates, np.array(valid, dtype)])
    assert np.array_equal(got, wanted[0])
    assert errors.tolist() == [0]
    _, errors = session.run([TABLE, updates, np.array(outside, dtype)])
    assert errors.tolist() == [1]


def test_constant_indices_are_checked_at_once() -> None:
    text = "g (float[4,3] t) => (float[3] y) <int64 i = {INDEX}> { y = Gather(t, i) }"
    made = Rewriter(model_of(text.replace("INDEX", "-4"))).rewritten()
    assert [tensor.name for tensor in made.graph.output] == ["y"]
    with pytest.raises(ModelError, match="out of range"):
        Rewriter(model_of(text.replace("INDEX", "4"))).rewritten()


BRANCH = "{0} () => (float[1] {1}) {{ {1} = Relu(x) }}"


@pytest.mark.parametrize(
    ("node", "named"),
    [
        (f"y = If(c) <then_branch = {BRANCH.format('a', 'u')}, else_branch = {BRANCH.format('b', 'v')}>", "If"),
        ("y = own.Thing(x)", "own.Thing"),
        ("y = com.microsoft.Attention(x, x)", "com.microsoft.Attention"),
    ],
)  # fmt: skip
def test_operators_that_would_be_misread_are_refused_by_name(node: str, named: str) -> None:
    domains = '"own" : 1, "com.microsoft" : 1, "" : 18'
    text = f"g (bool c, float[1] x) => (float[1] y) {{ {node} }}"
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{domains}]>\n{text}")
    with pytest.raises(ModelError, match=rf"\b{named}\b"):
        check_operators(model)
