from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support import DIGITS, SaveOnnx

from engine import EngineSpec, open_engine
from engine.epsilon import misread, misread_in_file
from engine.onnx_graph import load_model
from engine.ort import HostSession

NORM = """g (float[N,4] x) => (float[N,4] y)
<float two={2}, float e={EPSILON}, float[4] w={1,2,3,4}, float[4] b={1,1,1,1}> {
    m = ReduceMean<axes=[-1]>(x)
    d = Sub(x, m)
    p = Pow(d, two)
    v = ReduceMean<axes=[-1]>(p)
    a = Add(OPERANDS)
    s = Sqrt(a)
    n = Div(d, s)
    k = Mul(n, w)
    y = Add(k, b)
}"""
BODY = """g (bool c, float[2] x) => (float[2] y) <float e={1}> {
    y = If (c) <then_branch = a () => (float[2] p) { m = ReduceMean(x)  q = Add(e, m)  r = Sqrt(q)  p = Div(x, r) },
                else_branch = b () => (float[2] n) { n = Neg(x) }> }"""
FUNCTION = """g (float[2] x) => (float[2] y) { y = own.norm(x) }
    <domain: "own", opset_import: ["" : 17]> norm (x) => (y) { m = ReduceMean(x)  q = Add(x, m)  y = Sqrt(q) }"""


def norm(first: bool, epsilon: str = "0.5") -> str:
    return NORM.replace("OPERANDS", "e, v" if first else "v, e").replace("EPSILON", epsilon)


def expected(x: np.ndarray, epsilon: float) -> np.ndarray:
    d = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + epsilon) * np.arange(1, 5) + 1


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize("epsilon", ["1e-12", "1e-5", "0.5"])
@pytest.mark.parametrize("first", [True, False])
def test_a_layer_norm_is_right_whichever_way_its_epsilon_is_added(
    first: bool, epsilon: str, target: str, save_onnx: SaveOnnx
) -> None:
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32) * np.float32(0.01)
    path = save_onnx(norm(first, epsilon))
    with open_engine(target, EngineSpec(path, 8, dtype="float32", divided=False)) as engine:
        np.testing.assert_allclose(engine(x), expected(x, float(epsilon)), rtol=1e-4, atol=1e-5)
    for model in (path.read_bytes(), load_model(path)):
        np.testing.assert_allclose(HostSession(model).run([x])[0], expected(x, float(epsilon)), rtol=1e-4, atol=1e-5)


def test_onnx_runtime_by_itself_is_wrong(save_onnx: SaveOnnx) -> None:
    """Once this fails ONNX Runtime reads the epsilon where it stands, and ``engine/epsilon.py`` can go."""
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(save_onnx(norm(True))), providers=["CPUExecutionProvider"])
    assert np.abs(session.run(None, {"x": x})[0] - expected(x, 0.5)).max() > 0.1


@pytest.mark.parametrize(
    ("text", "found"),
    [(norm(True), True), (norm(False), False), (BODY, True), (BODY.replace("(e, m)", "(m, e)"), False)],
)
def test_where_it_is_found(text: str, found: bool, save_onnx: SaveOnnx) -> None:
    path = save_onnx(text)
    assert (misread_in_file(path), misread(path.read_bytes())) == (found, found)


def test_it_is_found_behind_what_onnx_runtime_takes_out(save_onnx: SaveOnnx) -> None:
    path = save_onnx(norm(True).replace("a = Add(e, v)", "i = Identity(v)\n    a = Add(e, i)"))
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    assert misread_in_file(path)
    np.testing.assert_allclose(HostSession(path).run([x])[0], expected(x, 0.5), rtol=1e-4, atol=1e-5)


def test_it_is_found_in_functions() -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    assert misread(onnx.parser.parse_model(header + FUNCTION).SerializeToString())
    assert not misread(onnx.parser.parse_model(header + FUNCTION.replace("(x, m)", "(m, x)")).SerializeToString())


def test_what_is_no_model_has_nothing_to_find(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    whole = save_onnx(norm(True)).read_bytes()
    assert not any(misread(whole[:size]) and size < len(whole) // 4 for size in range(len(whole)))
    assert not misread_in_file(tmp_path / "nothing.onnx")
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert not misread_in_file(empty)
    rng = np.random.default_rng(0)
    assert not any(misread(rng.bytes(64)) for _ in range(200))
    assert not misread_in_file(DIGITS / "digits.onnx")
