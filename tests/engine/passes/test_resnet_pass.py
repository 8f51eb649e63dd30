"""resnet_pass: constants folded into weights compute the same, for every attribute that moves weights around."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from pass_models import batch_norm, build, compute, floats, node, ops

from engine.base import PASS_PATH
from engine.passes.options import PassOptions
from engine.passes.resnet.linear import rounded
from engine.passes.resnet.resnet_pass import use_passes
from engine.passes.runner import apply_passes

OPTIONS = PassOptions.load(PASS_PATH / "resnet" / "resnet_pass.py")
CONV: dict[str, Any] = {"pads": [1, 1, 1, 1]}
Affine = tuple[list[onnx.NodeProto], dict[str, np.ndarray]]


def weights_of(model: onnx.ModelProto) -> list[np.ndarray]:
    return [numpy_helper.to_array(weight) for weight in model.graph.initializer]


@st.composite
def affine_chain(draw: st.DrawFn, channels: int, spatial: int) -> Affine:
    """Draw 1 to 3 nodes from ``c`` to ``y``: batch norms and arithmetic with constants of any broadcastable shape."""
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}
    kinds = draw(st.lists(st.sampled_from(["Add", "Sub", "Mul", "Div", "BatchNormalization"]), min_size=1, max_size=3))
    for i, kind in enumerate(kinds):
        source, target = ("c" if i == 0 else f"t{i}"), ("y" if i == len(kinds) - 1 else f"t{i + 1}")
        if kind == "BatchNormalization":
            parameters = batch_norm(channels, f"bn{i}")
            weights |= parameters
            nodes.append(node(kind, [source, *parameters], target, epsilon=draw(st.sampled_from([1e-5, 1e-3]))))
            continue
        full = (1, channels) + (1,) * spatial
        shape = draw(st.sampled_from([full, full[1:], (), (1,), (1,) * (spatial + 2)]))
        weights[f"k{i}"] = (np.abs(floats(*shape)) + np.float32(0.5)).astype(np.float32)
        operands = [source, f"k{i}"]
        if kind != "Div" and draw(st.booleans()):
            operands.reverse()
        nodes.append(node(kind, operands, target))
    return nodes, weights


def folds_to(model: onnx.ModelProto, op_type: str) -> None:
    after = apply_passes(model, OPTIONS)
    assert ops(after) == {op_type: 1}
    assert [value.name for value in after.graph.output] == ["y"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_affine_chains_fold_into_conv(data: st.DataObject) -> None:
    group, per_in, per_out = (data.draw(st.integers(1, 3)) for _ in range(3))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    tail, weights = data.draw(affine_chain(group * per_out, len(kernel)))
    weights["w"] = floats(group * per_out, per_in, *kernel)
    inputs = ["x", "w"]
    if data.draw(st.booleans()):
        weights["b"] = floats(group * per_out)
        inputs.append("b")
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * len(kernel), max_size=2 * len(kernel)))
    dilations = data.draw(st.lists(st.integers(1, 2), min_size=len(kernel), max_size=len(kernel)))
    conv = node("Conv", inputs, "c", group=group, pads=pads, dilations=dilations)
    folds_to(build([conv, *tail], weights, ["N", group * per_in, *[7] * len(kernel)]), "Conv")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_affine_chains_fold_into_conv_transpose(data: st.DataObject) -> None:
    group, per_in, per_out, kernel = (data.draw(st.integers(1, 3)) for _ in range(4))
    tail, weights = data.draw(affine_chain(group * per_out, 2))
    weights["w"] = floats(group * per_in, per_out, kernel, kernel)
    inputs = ["x", "w"]
    if data.draw(st.booleans()):
        weights["b"] = floats(group * per_out)
        inputs.append("b")
    stride = data.draw(st.integers(1, 2))
    deconv = node("ConvTranspose", inputs, "c", group=group, strides=[stride] * 2)
    folds_to(build([deconv, *tail], weights, ["N", group * per_in, 5, 5]), "ConvTranspose")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_affine_chains_fold_into_gemm(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    tail, weights = data.draw(affine_chain(columns, 0))
    transposed = data.draw(st.booleans())
    weights["w"] = floats(columns, rows) if transposed else floats(rows, columns)
    inputs = ["x", "w"]
    bias = data.draw(st.sampled_from([None, (), (1,), (columns,), (1, columns), (1, 1)]))
    if bias is not None:
        weights["b"] = floats(*bias)
        inputs.append("b")
    factor = st.sampled_from([0.5, 1.0, 2.0])
    gemm = node("Gemm", inputs, "c", transB=int(transposed), transA=0, alpha=data.draw(factor), beta=data.draw(factor))
    folds_to(build([gemm, *tail], weights, ["N", rows]), "Gemm")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_scales_before_conv_fold_even_with_padding(data: st.DataObject) -> None:
    group, per_in, per_out = (data.draw(st.integers(1, 3)) for _ in range(3))
    channels = group * per_in
    weights = {"w": floats(group * per_out, per_in, 3, 3)}
    nodes: list[onnx.NodeProto] = []
    source = "x"
    for i, kind in enumerate(data.draw(st.lists(st.sampled_from(["Mul", "Div"]), min_size=1, max_size=2))):
        shape = data.draw(st.sampled_from([(1, channels, 1, 1), (channels, 1, 1), (), (1,), (1, 1, 1, 1)]))
        weights[f"k{i}"] = (np.abs(floats(*shape)) + np.float32(0.5)).astype(np.float32)
        operands = [source, f"k{i}"]
        if kind == "Mul" and data.draw(st.booleans()):
            operands.reverse()
        source = f"s{i}"
        nodes.append(node(kind, operands, source))
    nodes.append(node("Conv", [source, "w"], "y", group=group, **CONV))
    folds_to(build(nodes, weights, ["N", channels, 5, 5]), "Conv")


CONV_WEIGHT = floats(4, 3, 3, 3)


def test_a_residual_block_loses_its_batch_norms() -> None:
    nodes = [
        node("Conv", ["x", "w1"], "c1", **CONV),
        node("BatchNormalization", ["c1", *batch_norm(4, "p")], "n1"),
        node("Relu", ["n1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", **CONV),
        node("BatchNormalization", ["c2", *batch_norm(4, "q")], "n2"),
        node("Conv", ["x", "w3"], "c3"),
        node("BatchNormalization", ["c3", *batch_norm(4, "r")], "n3"),
        node("Add", ["n2", "n3"], "s"),
        node("Relu", ["s"], "y"),
    ]
    weights = {"w1": floats(4, 3, 3, 3), "w2": floats(4, 4, 3, 3), "w3": floats(4, 3, 1, 1)}
    weights |= batch_norm(4, "p") | batch_norm(4, "q") | batch_norm(4, "r")
    after = apply_passes(build(nodes, weights, ["N", 3, 8, 8]), OPTIONS)
    assert ops(after) == {"Conv": 3, "Add": 1, "Relu": 2}
    assert len(after.graph.initializer) == 6


def test_sums_are_taken_in_float64() -> None:
    """1 + 2**-12 three times and then a shift back: float32 steps would round, one rounding at the end does not."""
    step = np.float32(1 + 2**-12)
    nodes = [
        node("Conv", ["x", "w"], "c"),
        *(node("Mul", [a, "k"], b) for a, b in (("c", "d"), ("d", "e"), ("e", "y"))),
    ]
    after = use_passes(build(nodes, {"w": CONV_WEIGHT, "k": np.array(step)}, ["N", 3, 8, 8]))
    exact = (CONV_WEIGHT.astype(np.float64) * np.float64(step) ** 3).astype(np.float32)
    assert np.array_equal(weights_of(after)[0], exact)


def test_values_with_other_readers_are_not_folded() -> None:
    conv, scale = node("Conv", ["x", "w"], "c"), node("Mul", ["c", "k"], "y")
    weights = {"w": CONV_WEIGHT, "k": floats(4, 1, 1)}
    as_output = build([conv, scale], weights, ["N", 3, 8, 8], ["y", "c"])
    assert ops(apply_passes(as_output, OPTIONS)) == {"Conv": 1, "Mul": 1}
    twice = build([conv, node("Mul", ["c", "k"], "s"), node("Add", ["s", "c"], "y")], weights, ["N", 3, 8, 8])
    assert ops(apply_passes(twice, OPTIONS)) == {"Conv": 1, "Mul": 1, "Add": 1}


def test_shared_weights_are_not_folded() -> None:
    nodes = [
        node("Conv", ["x", "w"], "c1"),
        node("Mul", ["c1", "k"], "s"),
        node("Relu", ["x"], "r"),
        node("Conv", ["r", "w"], "c2"),
        node("Add", ["s", "c2"], "y"),
    ]
    after = apply_passes(build(nodes, {"w": CONV_WEIGHT, "k": floats(4, 1, 1)}, ["N", 3, 8, 8]), OPTIONS)
    assert ops(after)["Mul"] == 1


@pytest.mark.parametrize(
    ("op_type", "operands", "constant"),
    [
        ("Mul", ["c", "k"], floats(4, 1, 6)),  # differs along the image's width
        ("Add", ["c", "k"], floats(6)),  # the same, by its last axis
        ("Add", ["c", "k"], floats(1, 1, 4, 1, 1)),  # raises the rank
        ("Add", ["c", "k"], floats(2, 1, 1, 1)),  # differs from sample to sample
        ("Div", ["k", "c"], floats(4, 1, 1)),  # not linear
        ("Mul", ["c", "c"], floats(1)),
        ("Pow", ["c", "k"], np.array(2, np.float32)),
    ],
)
def test_other_operators_stay(op_type: str, operands: list[str], constant: np.ndarray) -> None:
    nodes = [node("Conv", ["x", "w"], "c"), node(op_type, operands, "y")]
    model = build(nodes, {"w": CONV_WEIGHT, "k": constant}, [2, 3, 8, 8])
    assert ops(apply_passes(model, OPTIONS))[op_type] == 1


def test_a_division_by_zero_stays() -> None:
    nodes = [node("Conv", ["x", "w"], "c"), node("Div", ["c", "k"], "y")]
    model = build(nodes, {"w": CONV_WEIGHT, "k": np.zeros((4, 1, 1), np.float32)}, ["N", 3, 8, 8])
    assert ops(apply_passes(model, OPTIONS)) == {"Conv": 1, "Div": 1}


def test_a_shift_before_a_conv_stays() -> None:
    nodes = [node("Sub", ["x", "k"], "s"), node("Conv", ["s", "w"], "y", **CONV)]
    model = build(nodes, {"w": CONV_WEIGHT, "k": floats(3, 1, 1)}, ["N", 3, 8, 8])
    assert ops(apply_passes(model, OPTIONS)) == {"Sub": 1, "Conv": 1}


def test_a_scale_that_widens_its_input_stays() -> None:
    nodes = [node("Mul", ["x", "k"], "s"), node("Conv", ["s", "w"], "y")]
    model = build(nodes, {"w": CONV_WEIGHT, "k": floats(3, 1, 1)}, ["N", 1, 8, 8])
    assert ops(apply_passes(model, OPTIONS)) == {"Mul": 1, "Conv": 1}


def test_a_lone_batch_norm_stays() -> None:
    weights = batch_norm(3)
    model = build([node("BatchNormalization", ["x", *weights], "y")], weights, ["N", 3, 8, 8])
    assert ops(apply_passes(model, OPTIONS)) == {"BatchNormalization": 1}


def test_a_training_batch_norm_is_not_a_constant_scale() -> None:
    weights = batch_norm(4) | {"w": CONV_WEIGHT}
    names = list(batch_norm(4))
    norm = node("BatchNormalization", ["c", *names], ["y", "m", "v"], training_mode=1)
    after = use_passes(build([node("Conv", ["x", "w"], "c"), norm], weights, ["N", 3, 8, 8]))
    assert ops(after) == {"Conv": 1, "BatchNormalization": 1}


def test_a_batch_norm_per_position_of_opset_8_stays() -> None:
    weights = {name: np.abs(floats(4, 6, 6)) for name in batch_norm(4)} | {"w": CONV_WEIGHT}
    nodes = [node("Conv", ["x", "w"], "c"), node("BatchNormalization", ["c", *batch_norm(4)], "y", spatial=0)]
    assert ops(use_passes(build(nodes, weights, ["N", 3, 8, 8], opset=8)))["BatchNormalization"] == 1


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 15, 20])
def test_folding_at_many_opsets(opset: int) -> None:
    weights = batch_norm(4) | {"w": CONV_WEIGHT}
    nodes = [node("Conv", ["x", "w"], "c"), node("BatchNormalization", ["c", *batch_norm(4)], "y")]
    folds_to(build(nodes, weights, ["N", 3, 8, 8], opset=opset), "Conv")


def test_a_gemm_with_a_bias_per_row_stays() -> None:
    nodes = [node("Gemm", ["x", "w", "b"], "c"), node("Mul", ["c", "k"], "y")]
    model = build(nodes, {"w": floats(3, 4), "b": floats(2, 1), "k": floats(4)}, [2, 3])
    assert ops(apply_passes(model, OPTIONS)) == {"Gemm": 1, "Mul": 1}


def test_weights_given_as_inputs_stay() -> None:
    model = build(
        [node("Conv", ["x", "w"], "c"), node("Mul", ["c", "k"], "y")],
        {"k": floats(4, 1, 1), "w": CONV_WEIGHT},
        ["N", 3, 8, 8],
    )
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    assert ops(apply_passes(model, OPTIONS)) == {"Conv": 1, "Mul": 1}


def test_float16_weights_are_rounded_once_and_overflow_is_not_folded() -> None:
    half = {"w": floats(4, 3, 3, 3, dtype=np.float16), "k": floats(4, 1, 1, dtype=np.float16)}
    nodes = [node("Conv", ["x", "w"], "c"), node("Mul", ["c", "k"], "y")]
    after = apply_passes(build(nodes, half, ["N", 3, 8, 8], kind=TensorProto.FLOAT16), OPTIONS)
    assert ops(after) == {"Conv": 1}
    assert weights_of(after)[0].dtype == np.float16
    large = half | {"k": np.full((4, 1, 1), 60000, np.float16)}
    after = use_passes(build(nodes, large, ["N", 3, 8, 8], kind=TensorProto.FLOAT16))
    assert ops(after) == {"Conv": 1, "Mul": 1}


def test_rounded_returns_none_beyond_the_dtype() -> None:
    assert rounded(np.array([1e6]), np.dtype(np.float16)) is None
    assert rounded(np.array([1e-7]), np.dtype(np.float16)) is None
    assert rounded(np.array([1e-9, 1.0]), np.dtype(np.float16)) is not None
    assert rounded(np.array([np.inf]), np.dtype(np.float32)) is None
    assert rounded(np.zeros(0), np.dtype(np.float32)) is not None


def test_convs_inside_a_branch_are_folded() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = [node("Conv", ["x", f"w{name}"], f"c{name}"), node("Mul", [f"c{name}", "k"], f"y{name}")]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, ["N", 4, 6, 6])]
        )

    nodes = [
        node("ReduceSum", ["x"], "total", keepdims=0),
        node("Greater", ["total", "limit"], "large"),
        node("If", ["large"], "y", then_branch=branch("t"), else_branch=branch("e")),
    ]
    weights = {
        "limit": np.array(0, np.float32),
        "k": floats(4, 1, 1),
        "wt": floats(4, 3, 3, 3),
        "we": floats(4, 3, 3, 3),
    }
    model = build(nodes, weights, ["N", 3, 8, 8])
    after = apply_passes(model, OPTIONS)
    x = floats(2, 3, 8, 8)
    for sample in (x, -x):
        want, got = compute(model, sample)[0], compute(after, sample)[0]
        assert np.abs(want - got).max() < 1e-4 * np.abs(want).max()
    for attribute in next(n for n in after.graph.node if n.op_type == "If").attribute:
        assert [n.op_type for n in attribute.g.node] == ["Conv"]


@pytest.mark.torch
def test_a_torch_resnet_block_exported_without_folding(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8)
            self.up, self.head = torch.nn.ConvTranspose2d(8, 4, 2, stride=2), torch.nn.Linear(4, 5)
            self.drop = torch.nn.Dropout()

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.norm(self.conv(x / 0.25)))
            x = self.up(x) * 0.5 + 1.0
            return self.head(self.drop(x.mean((2, 3)))) - 3.0

    torch.manual_seed(0)
    block = Block()
    block(torch.randn(8, 3, 8, 8))  # running statistics that are not 0 and 1
    block.eval()
    path = tmp_path / "block.onnx"
    x = torch.randn(2, 3, 8, 8)
    names: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "N"}}, "dynamo": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from torch's older exporter
        torch.onnx.export(
            block, (x,), str(path), do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, **names
        )
    model = onnx.load(path)
    after = apply_passes(model, OPTIONS)
    assert sum(ops(after).values()) <= sum(ops(model).values()) - 5
    assert set(ops(after)) == {"Conv", "Relu", "ConvTranspose", "ReduceMean", "Gemm"}
    want = block(x).detach().numpy()
    assert np.abs(compute(after, x.numpy())[0] - want).max() < 1e-4 * np.abs(want).max()
