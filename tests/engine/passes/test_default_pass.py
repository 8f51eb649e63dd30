"""default_pass: fewer nodes, same values, same interface."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_models import build, compute, floats, node, ops

from engine.base import PASS_PATH, PassError
from engine.passes.default_pass import use_passes
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes

OPTIONS = PassOptions.load(PASS_PATH / "default_pass.py")


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_constants_identities_duplicates_and_dead_nodes_are_removed() -> None:
    nodes = [
        node("Add", ["a", "b"], "bias"),  # constant
        node("Identity", ["x"], "same"),
        node("Relu", ["same"], "r1"),
        node("Relu", ["x"], "r2"),  # duplicate
        node("Exp", ["x"], "dead"),
        node("Add", ["r1", "r2"], "sum"),
        node("Add", ["sum", "bias"], "out"),
        node("Identity", ["out"], "y"),
    ]
    model = build(nodes, {"a": floats(3), "b": floats(3), "unused": floats(9)}, ["N", 3])
    after = apply_passes(model, OPTIONS)
    assert ops(after) == {"Relu": 1, "Add": 2}
    assert [weight.name for weight in after.graph.initializer] == ["bias"]
    assert after.graph.output[0].name == "y"
    assert after.opset_import[0].version == 17
    assert after.ir_version == model.ir_version
    assert {p.key: p.value for p in after.metadata_props} == {"labels": "zero,one"}


def test_shape_arithmetic_of_an_export_is_folded_once_shapes_are_known() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "n", axis=0),
        node("Unsqueeze", ["n", "axis"], "n1"),
        node("Concat", ["n1", "rest"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    weights = {"zero": np.array(0, np.int64), "axis": i64(0), "rest": i64(-1)}
    assert ops(apply_passes(build(nodes, weights, [4, 3, 2]), OPTIONS)) == {"Reshape": 1}
    apply_passes(build(nodes, weights, ["N", 3, 2]), OPTIONS)  # also correct with dynamic shapes


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 17])
def test_inference_dropout_is_removed_at_any_opset(opset: int) -> None:
    nodes = [node("Relu", ["x"], "r"), node("Dropout", ["r"], "d"), node("Softmax", ["d"], "y", axis=1)]
    after = apply_passes(build(nodes, {}, ["N", 3], opset=opset), OPTIONS)
    assert ops(after) == {"Relu": 1, "Softmax": 1}
    assert after.opset_import[0].version == opset


def test_a_dropout_with_a_used_mask_stays() -> None:
    model = build([node("Dropout", ["x"], ["y", "mask"])], {}, ["N", 3], ["y", "mask"], opset=10)
    assert ops(use_passes(model)) == {"Dropout": 1}


@pytest.mark.parametrize("opset", [7, 8, 10, 13, 18, 21])
def test_a_small_network_at_many_opsets(opset: int) -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], "c", pads=[1] * 4, strides=[2, 2]),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], "n"),
        node("Relu", ["n"], "r"),
        node("GlobalAveragePool", ["r"], "p"),
        node("Flatten", ["p"], "f"),
        node("Gemm", ["f", "k", "kb"], "y", transB=1),
    ]
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4), "g": floats(4), "m": floats(4)}
    weights |= {"v": np.abs(floats(4)) + 1, "k": floats(2, 4), "kb": floats(2)}
    after = apply_passes(build(nodes, weights, ["N", 3, 8, 8], opset=opset), OPTIONS)
    assert sum(ops(after).values()) == len(nodes)


def test_folding_does_not_multiply_weights() -> None:
    nodes = [
        node("Expand", ["one", "shape"], "wide"),
        node("Add", ["x", "wide"], "s"),
        node("Transpose", ["w"], "wt", perm=[1, 0]),  # w has another reader
        node("MatMul", ["s", "w"], "a"),
        node("MatMul", ["a", "wt"], "y"),
    ]
    model = build(nodes, {"one": floats(1, 1), "shape": i64(1, 64), "w": floats(64, 64)}, ["N", 64])
    after = apply_passes(model, OPTIONS)
    stored = [sum(len(w.raw_data) for w in m.graph.initializer) for m in (model, after)]
    assert stored[1] <= stored[0] + 128


def if_model() -> onnx.ModelProto:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [
            node("Constant", [], f"{name}_k", value=numpy_helper.from_array(floats(3))),
            node("Identity", ["h"], f"{name}_h"),
            node(op, [f"{name}_h", f"{name}_k"], f"{name}_y"),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    nodes = [
        node("Relu", ["x"], "h"),
        node("ReduceSum", ["h"], "total", keepdims=0),
        node("Greater", ["total", "limit"], "large"),
        node("If", ["large"], "y", then_branch=branch("t", "Add"), else_branch=branch("e", "Mul")),
    ]
    return build(nodes, {"limit": np.array(0.1, np.float32)}, ["N", 3])


def test_models_with_branches() -> None:
    model = if_model()
    after = apply_passes(model, OPTIONS)
    assert ops(after)["If"] == 1
    for value in (-1.0, 1.0):
        x = np.full((2, 3), value, np.float32)
        assert np.array_equal(compute(model, x)[0], compute(after, x)[0])


def test_models_with_loops() -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], "go_on"), node("Add", ["w", "w"], "w2"), node("Add", ["state", "w2"], "next")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["N", 3]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, ["N", 3]),
        ],
    )
    nodes = [node("Loop", ["count", "yes", "x"], "l", body=body), node("Reshape", ["l", "shape"], "y")]
    weights = {"count": np.array(3, np.int64), "yes": np.array(True), "w": floats(3), "shape": i64(-1, 3)}
    after = apply_passes(build(nodes, weights, ["N", 3]), OPTIONS)
    assert ops(after) == {"Loop": 1, "Reshape": 1}


def test_several_outputs_of_one_value_keep_their_names() -> None:
    nodes = [node("Relu", ["x"], "a"), node("Identity", ["a"], "b"), node("Identity", ["x"], "c")]
    after = apply_passes(build(nodes, {}, ["N", 3], ["b", "a", "c"]), OPTIONS)
    assert [value.name for value in after.graph.output] == ["b", "a", "c"]


def test_weights_that_are_also_inputs_are_not_folded() -> None:
    model = build([node("Add", ["w", "w"], "w2"), node("Mul", ["x", "w2"], "y")], {"w": floats(3)}, ["N", 3])
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    after = apply_passes(model, OPTIONS)
    assert ops(after) == {"Add": 1, "Mul": 1}


def test_an_invalid_model_raises() -> None:
    model = build([node("Relu", ["x"], "y")], {}, ["N", 3])
    model.graph.node.append(helper.make_node("Relu", ["x"], ["y"]))  # y twice: not SSA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PassError, match="default_pass"):
            use_passes(model)


def test_weights_that_are_inputs_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Before IR 4 all weights are listed as inputs; the library would log each of them."""
    text = (
        '<ir_version: 3, opset_import: ["" : 9]> g (float[N,2] x, float[2] w, float[2] v) => (float[N,2] y)'
        " <float[2] w = {1, 2}, float[2] v = {1, 2}> { z = Add(x, w)  y = Mul(z, v) }"
    )
    result = use_passes(onnx.parser.parse_model(text))
    assert [info.name for info in result.graph.input] == ["x", "w", "v"]
    assert not caplog.records
