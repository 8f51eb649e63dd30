"""Kinds of outputs, for the forms that exporters write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from support import ROOT

from engine.onnx import KINDS, Tail, output_tails
from engine.onnx.light import LightModel
from engine.onnx.tails import LABELS, LOG_PROBABILITIES, LOGITS, PROBABILITIES, tails_of
from engine.onnx.wire import BytesSource
from utils.outputs import KINDS as READ_KINDS

WEIGHTS = {
    "w": (4, 5),
    "wt": (5, 4),
    "b": (5,),
    "k": (5, 3, 1, 1),
    "kt": (3, 5, 1, 1),
    "m": (5, 5),
    "one": (),
    "half": (),
}
INDICES = {"last": (-1,), "first": (1,), "two": (2,), "tail": (2, 3), "sides": (0, -1)}
NUMBERS = {"zero": 0, "ten": 10}


def tail(body: str, y: str = "float[N, 5] y", x: str = "float[N, 4] x", opset: int = 17, functions: str = "") -> Tail:
    """Return the properties of the last output of a graph, parsed from its bytes."""
    name = y.split(",")[-1].split()[-1]
    text = f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]>\ng ({x}) => ({y}) {{ {body} }}\n{functions}'
    model = parser.parse_model(text)
    _add_weights(model.graph)
    content = model.SerializeToString()
    found = tails_of(LightModel(BytesSource(content), len(content)))
    return found[name]


def _add_weights(graph: onnx.GraphProto) -> None:
    for name, shape in WEIGHTS.items():
        graph.initializer.append(numpy_helper.from_array(np.full(shape, 0.5, np.float32), name))
    for name, values in INDICES.items():
        graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    for name, value in NUMBERS.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))


GEMM = "h = Gemm<transB = 1>(x, wt, b) "
MATMUL = "p = MatMul(x, w) h = Add(p, b) "
CONV = "h = Conv(x, k, b) "
IMAGE, MAPS = "float[N, 3, 8, 8] x", "float[N, 5, 8, 8] y"
ROWS: list[tuple[str, str | None]] = [
    (GEMM + "y = Identity(h)", LOGITS),
    (MATMUL + "y = Identity(h)", LOGITS),
    (GEMM + "y = Cast<to = 10>(h)", LOGITS),
    (GEMM + "y = Relu(h)", None),
    (GEMM + "y = Softmax<axis = 1>(h)", PROBABILITIES),
    (GEMM + "s = Softmax(h) c = Cast<to = 10>(s) y = Identity(c)", PROBABILITIES),
    (GEMM + "s = Softmax(h) r = Reshape(s, sides) f = Flatten(r) y = Squeeze(f, last)", PROBABILITIES),
    (GEMM + "s = Softmax(h) y = Dropout(s)", PROBABILITIES),
    (GEMM + "s = Softmax(h) q = QuantizeLinear(s, half, qz) y = DequantizeLinear(q, half, qz)", PROBABILITIES),
    (GEMM + "s = Softmax(h) y = Clip(s, one, half)", PROBABILITIES),
    (GEMM + "s = Sigmoid(h) y = Identity(s)", PROBABILITIES),
    (GEMM + "y = HardSigmoid(h)", PROBABILITIES),
    (GEMM + "y = LogSoftmax(h)", LOG_PROBABILITIES),
    (GEMM + "s = Softmax(h) y = Log(s)", LOG_PROBABILITIES),
    (GEMM + "s = LogSoftmax(h) y = Exp(s)", PROBABILITIES),
    (GEMM + "y = Log(h)", None),
    (
        GEMM + "a = ReduceMax<axes = [1]>(h) c = Sub(h, a) e = Exp(c) s = ReduceSum(e, first) y = Div(e, s)",
        PROBABILITIES,
    ),
    (GEMM + "n = Neg(h) e = Exp(n) s = Add(e, one) y = Div(one, s)", PROBABILITIES),
    (GEMM + "n = Neg(h) e = Exp(n) s = Add(one, e) y = Reciprocal(s)", PROBABILITIES),
    (GEMM + "y = Div(h, half)", None),
    (GEMM + "s = Softmax(h) t = Sigmoid(h) y = Mul(s, t)", PROBABILITIES),
    (GEMM + "s = Sigmoid(h) y = Mul(h, s)", None),
    (GEMM + "s = Softmax(h) y = Mul(s, half)", None),
    (GEMM + "s = Softmax(h) t = Softmax(x) y = Mean(s, s)", PROBABILITIES),
    (GEMM + "s = Softmax(h) y = Concat<axis = 1>(s, h)", None),
    (GEMM + "a = ArgMax<axis = 1, keepdims = 0>(h) y = Cast<to = 1>(a)", LABELS),
    (GEMM + "a = ArgMax<axis = -1>(h) s = Squeeze(a, last) y = Identity(s)", LABELS),
    (GEMM + "s = Softmax(h) a = ArgMax<axis = 1>(s) y = Cast<to = 1>(a)", LABELS),
    (GEMM + "v, i = TopK(h, first) y = Cast<to = 1>(i)", LABELS),
    (GEMM + "s = Sigmoid(h) g = Greater(s, half) y = Cast<to = 1>(g)", LABELS),
    (GEMM + "s = Sigmoid(h) y = Round(s)", LABELS),
    (GEMM + "s = Sigmoid(h) g = Less(s, half) y = Where(g, half, one)", LABELS),
    (GEMM + "a = ArgMax<axis = 1>(h) c = Cast<to = 1>(a) y = Mul(c, half)", None),
    (GEMM + "a = ArgMax<axis = 1>(h) c = Cast<to = 1>(a) y = Add(h, c)", None),
    # inside: an attention's softmax, a gate's sigmoid, an ArgMax that picks a row
    ("s = Softmax(x) p = MatMul(s, w) y = Add(p, b)", LOGITS),
    ("s = Sigmoid(x) y = Gemm(s, w)", LOGITS),
    ("a = ArgMax<axis = 0>(x) c = Cast<to = 1>(a) y = MatMul(c, w)", LOGITS),
]


@pytest.mark.parametrize(("body", "kind"), ROWS)
def test_rows_of_classes(body: str, kind: str | None) -> None:
    assert tail(body).kind == kind


def test_the_kinds_have_one_spelling() -> None:
    assert KINDS == READ_KINDS


def test_sorted_values_are_marked() -> None:
    found = tail(GEMM + "s = Softmax(h) y, i = TopK(s, two)")
    assert (found.kind, found.sorted, found.axis) == (PROBABILITIES, True, None)


@pytest.mark.parametrize(
    ("body", "y", "kind", "axis", "classes"),
    [
        (CONV + "y = Identity(h)", MAPS, LOGITS, 1, 5),
        (CONV + "y = Transpose<perm = [0, 2, 3, 1]>(h)", "float[N, 8, 8, 5] y", LOGITS, 3, 5),
        (CONV + "t = Transpose<perm = [0, 2, 3, 1]>(h) y = Softmax(t)", "float[N, 8, 8, 5] y", PROBABILITIES, 3, 5),
        (CONV + "s = Softmax<axis = 1>(h) y = Transpose<perm = [0, 2, 3, 1]>(s)", MAPS, PROBABILITIES, 3, 5),
        (CONV + "s = Sigmoid(h) y = Transpose<perm = [0, 2, 3, 1]>(s)", MAPS, PROBABILITIES, 3, 5),
        (CONV + "r = Relu(h) y = Resize(r, , , sizes)", MAPS, None, 1, 5),
        (CONV + "y = Resize(h, , , sizes)", MAPS, LOGITS, 1, 5),
        ("h = ConvTranspose(x, kt, b) y = Softmax<axis = 1>(h)", MAPS, PROBABILITIES, 1, 5),
        (CONV + "s = Softmax<axis = 1>(h) y = Slice(s, first, two, first)", MAPS, PROBABILITIES, 1, None),
        (CONV + "y = ArgMax<axis = 1, keepdims = 0>(h)", "int64[N, 8, 8] y", LABELS, None, 5),
        (CONV + "a = ArgMax<axis = 1>(h) y = Cast<to = 1>(a)", "float[N, 1, 8, 8] y", LABELS, None, 5),
        (
            CONV + "t = Transpose<perm = [0, 2, 3, 1]>(h) y = ArgMax<axis = 3>(t)",
            "int64[N, 8, 8, 1] y",
            LABELS,
            None,
            5,
        ),
        (CONV + "s = Sigmoid(h) y = Squeeze(s, first)", "float[N, 8, 8] y", PROBABILITIES, None, 5),
        (CONV + "u = Unsqueeze(h, last) s = Squeeze(u, last) y = Identity(s)", MAPS, LOGITS, 1, 5),
    ],
)
def test_class_axis_of_maps(body: str, y: str, kind: str | None, axis: int | None, classes: int) -> None:
    found = tail(body, y, IMAGE)
    assert (found.kind, found.axis, found.classes) == (kind, axis, classes)


def test_softmax_of_an_old_opset_uses_axis_1() -> None:
    assert tail(CONV + "y = Softmax(h)", MAPS, IMAGE, opset=11).axis == 1
    assert tail(CONV + "y = Softmax(h)", MAPS, IMAGE, opset=13).axis == 3


def test_search_is_bounded() -> None:
    """Tensors behind thousands of joined tensors, or recursive functions, are unknown."""
    joined = " ".join(f"h{i + 1} = Concat<axis = 1>(h{i}, h{i})" for i in range(3000))
    assert tail(f"h0 = Softmax(x) {joined} y = Identity(h3000)").kind is None
    again = '<domain: "own", opset_import: ["": 17, "own": 1]>\nlast (a) => (c) { c = own.last(a) }'
    assert tail(GEMM + "y = own.last(h)", functions=again).kind is None
    moved = " ".join(f"h{i + 1} = Identity(h{i})" for i in range(1500))
    assert tail(f"h0 = Softmax(x) {moved} y = Identity(h1500)").kind == PROBABILITIES


def test_functions_and_branches_are_followed() -> None:
    function = '<domain: "own", opset_import: ["": 17]>\nlast (a) => (c) { q = Softmax<axis = -1>(a) c = Identity(q) }'
    assert tail(GEMM + "y = own.last(h)", functions=function).kind == PROBABILITIES
    outside = '<domain: "own", opset_import: ["": 17]>\nlast (a) => (c) { c = Identity(a) }'
    assert tail(GEMM + "s = Softmax(h) y = own.last(s)", functions=outside).kind == PROBABILITIES
    assert tail(GEMM + "y = own.other(h)").kind is None

    def branches(one: str, other: str) -> Tail:
        graphs = f"then_branch = g1 () => (float[N, 5] r1) {{ {one} }}, else_branch = g2 () => (float[N, 5] r2) "
        body = f"c = Cast<to = 9>(one) y = If (c) <{graphs} {{ {other} }}>"
        return tail(GEMM + "s = Softmax(h) " + body)

    assert branches("r1 = Identity(s)", "r2 = Squeeze(s, last)").kind == PROBABILITIES
    assert branches("r1 = Identity(s)", "r2 = Identity(h)").kind is None
    assert branches("r1 = ArgMax<axis = 1>(h)", "r2 = ArgMax<axis = 1>(s)").kind == LABELS


@pytest.mark.parametrize("number", range(2))
def test_only_the_requested_output(number: int, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]>\ng (float[N, 4] x) => (float[N, 5] y, float[N, 5] z) {{ {GEMM}'
    model = parser.parse_model(text + " y = Softmax(h) z = Identity(h) }")
    _add_weights(model.graph)
    onnx.save(model, tmp_path / "m.onnx")
    name, kind = (("y", PROBABILITIES), ("z", LOGITS))[number]
    found = output_tails(tmp_path / "m.onnx", {name})
    assert {one: tail.kind for one, tail in found.items()} == {name: kind}


def large(path: Path, external: bool) -> None:
    """Write a classifier whose weights have more than 16 MB, its nodes in the order that the file gives them."""
    weights = numpy_helper.from_array(np.zeros((1024, 5000), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1)]
    ends = [helper.make_tensor_value_info(*one) for one in (("x", TensorProto.FLOAT, ["N", 1024]),)]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5000])]
    model = helper.make_model(helper.make_graph(nodes, "g", ends, out, [weights]))
    onnx.save(model, path, save_as_external_data=external, location="w.bin")


@pytest.mark.parametrize("external", [False, True])
def test_weights_are_not_read(external: bool, tmp_path: Path) -> None:
    large(tmp_path / "m.onnx", external)
    (found,) = output_tails(tmp_path / "m.onnx").values()
    assert (found.kind, found.operator) == (PROBABILITIES, "Softmax")


def cut(content: bytes, places: Sequence[int]) -> list[bytes]:
    return [content[:place] for place in places]


def test_invalid_files_have_no_tails(tmp_path: Path) -> None:
    assert output_tails(tmp_path / "absent.onnx") == {}
    assert output_tails(tmp_path) == {}
    whole = (ROOT / "example/classification/digits/digits_dyn.onnx").read_bytes()
    rng = np.random.default_rng(3)
    for content in (b"", b"\xff" * 400, *cut(whole, rng.integers(0, len(whole), 40).tolist())):
        (tmp_path / "m.onnx").write_bytes(content)
        assert all(isinstance(one, Tail) for one in output_tails(tmp_path / "m.onnx").values())
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 5).tolist():
            damaged[place] = int(rng.integers(256))
        (tmp_path / "m.onnx").write_bytes(bytes(damaged))
        output_tails(tmp_path / "m.onnx")
