"""Control flow, and outputs that nodes read, in a float16 model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from engine import EngineSpec, open_engine
from engine.onnx import save_model, to_float16

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'

BRANCHES = """g (float[N,3] x, int64[N,3] m, bool c) => (float[N,3] y) <float[3] w = {1,2,3}> {
    h = Mul(x, w)
    y = If(c) <
        then_branch = t () => (float[N,3] a) { f = Cast<to=1>(m) s = Max(h, f) a = Add(s, w) },
        else_branch = e () => (float[N,3] b) <float[3] v = {0.5,0.5,0.5}> { q = Max(h, v) b = Mul(q, h) }
    >
}"""
"""A cast, a float32 operator, a weight and a captured value, each inside a branch."""

NESTED = """g (float[N,3] x, int64[N,3] m, bool c) => (float[N,3] y) {
    h = Neg(x)
    y = If(c) <
        then_branch = t () => (float[N,3] a) {
            a = If(c) <
                then_branch = tt () => (float[N,3] aa) { f = Cast<to=1>(m) aa = Add(f, h) },
                else_branch = te () => (float[N,3] ab) { ab = Identity(h) }
            >
        },
        else_branch = e () => (float[N,3] b) { b = Exp(h) }
    >
}"""

LOOP = """g (float[N,3] x, int64[N,3] m, bool c) => (float[N,3] y) <int64 n = {3}> {
    h = Neg(x)
    y = Loop(n, c, x) <
        body = b (int64 i, bool on, float[N,3] was) => (bool still, float[N,3] now) {
            still = Identity(on) f = Cast<to=1>(m) s = Add(f, h) now = Add(was, s)
        }
    >
}"""


@pytest.mark.parametrize("text", [BRANCHES, NESTED, LOOP], ids=["branches", "nested", "loop"])
@pytest.mark.parametrize("way", [True, False])
def test_bodies_of_a_float16_model(text: str, way: bool, tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + text)
    half = to_float16(model)
    onnx.checker.check_model(half, full_check=True)
    assert {info.type.tensor_type.elem_type for info in (half.graph.input[0], half.graph.output[0])} == {10}
    x = np.array([[0.5, -1.0, 2.0]], np.float32)
    inputs = [x, np.array([[1, 2, 3]]), np.array(way)]
    answers = []
    for name, made in (("float32", model), ("float16", half)):
        save_model(made, tmp_path / f"{name}.onnx")
        with open_engine("onnx", EngineSpec(ckpt=tmp_path / f"{name}.onnx", dtype=name)) as engine:
            answers.append(np.asarray(engine([x.astype(name), *inputs[1:]])))
    np.testing.assert_allclose(answers[1], answers[0], rtol=2e-3)


def test_an_output_that_a_float32_node_reads(tmp_path: Path) -> None:
    """Max and TopK stay float32; each needs a cast before it."""
    body = "{ y = Neg(x) z = Max(y, x) v, i = TopK<axis=1>(z, k) }"
    ends = "float[N,3] y, float[N,3] z, float[N,2] v, int64[N,2] i"
    half = to_float16(parser.parse_model(f"{HEAD}g (float[N,3] x) => ({ends}) <int64[1] k = {{2}}> {body}"))
    onnx.checker.check_model(half, full_check=True)
    assert [info.type.tensor_type.elem_type for info in half.graph.output] == [10, 10, 10, 7]
    assert not {info.name for info in half.graph.value_info} & {info.name for info in half.graph.output}
    save_model(half, tmp_path / "m.onnx")
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m.onnx", dtype="float16")) as engine:
        found = engine(np.array([[0.5, -1.0, 2.0]], np.float16))
    for got, wanted in zip(found, ([[-0.5, 1, -2]], [[0.5, 1, 2]], [[2, 1]], [[2, 1]]), strict=True):
        np.testing.assert_array_equal(got, np.array(wanted))
