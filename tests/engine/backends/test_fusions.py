"""Fusions of ONNX Runtime do not change results."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from support import SaveOnnx

from engine import EngineSpec, open_engine
from engine.backends.ort import WRONG_FUSIONS, HostSession

X = np.random.default_rng(0).standard_normal((5, 3, 4))
SCALE, SHIFT = np.arange(1, 5), np.asarray([1, -1, 2, 0.5])
WRITTEN = {
    "epsilon": ("init", "constant", "cast", "input and init", "one each"),
    "add": ("v e", "e v"),
    "sub": ("x m", "m x"),
    "square": ("Pow", "Mul", "Sub Sub"),
    "exponent": (2.0, 3.0),
    "div": ("d s", "s d"),
    "mul": ("n w", "w n"),
    "bias": ("k b", "b k"),
    "kind": ("layer", "rms", "instance"),
    "opset": (17, 18),
    "dtype": (np.float32, np.float64),
    "value": (1e-12, 1e-5, 0.5),
}
"""Decompositions of a norm; the first of each list is that of exporters."""


def ways() -> list[dict[str, object]]:
    """Return every way by itself and every two of them."""
    singles = [(key, value) for key, values in WRITTEN.items() for value in values[1:]]
    pairs = [dict(pair) for pair in itertools.combinations(singles, 2) if pair[0][0] != pair[1][0]]
    first = {key: values[0] for key, values in WRITTEN.items()}
    return [first | way for way in ({}, *({key: value} for key, value in singles), *pairs)]


def epsilon(way: dict[str, object]) -> np.ndarray:
    return np.asarray(way["value"]) * (np.arange(1, 5) if way["epsilon"] == "one each" else 1)


def written_out(way: dict[str, object]) -> onnx.ModelProto:
    """Return a norm over the last axis (``instance``: over the middle one), written out."""
    dtype, axis = np.dtype(way["dtype"]), 1 if way["kind"] == "instance" else -1
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    held = {"two": way["exponent"], "w": SCALE, "b": SHIFT, "e": epsilon(way)}
    wide = numpy_helper.from_array(epsilon(way), "wide")
    init = [numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in held.items()]
    inputs, nodes = [helper.make_tensor_value_info("x", kind, ["N", 3, 4])], []
    if way["epsilon"] in ("constant", "cast"):
        constant = helper.make_node("Constant", [], ["e"], value=init.pop())
        nodes = [constant if way["epsilon"] == "constant" else helper.make_node("Cast", ["wide"], ["e"], to=kind)]
    elif way["epsilon"] == "input and init":  # which a caller may override
        inputs.append(helper.make_tensor_value_info("e", kind, []))

    def node(op: str, read: str, write: str, **attributes: object) -> None:
        nodes.append(helper.make_node(op, read.split(), [write], **attributes))

    def mean(read: str, write: str) -> None:
        if way["opset"] == 17:
            node("ReduceMean", read, write, axes=[axis])
        else:
            node("ReduceMean", f"{read} axes", write)

    d = "x" if way["kind"] == "rms" else "d"
    if d == "d":
        mean("x", "m")
        node("Sub", str(way["sub"]), d)
    if way["square"] == "Sub Sub" and d == "d":
        node("Sub", str(way["sub"]), "again")
    other = nodes[-1].output[0] if d == "d" else d
    node("Pow", f"{d} two", "p") if way["square"] == "Pow" else node("Mul", f"{d} {other}", "p")
    mean("p", "v")
    node("Add", str(way["add"]), "a")
    node("Sqrt", "a", "s")
    node("Div", str(way["div"]).replace("d", d), "n")
    node("Mul", str(way["mul"]), "k")
    node("Add", str(way["bias"]), "y")
    init += [numpy_helper.from_array(np.asarray([axis]), "axes"), wide]
    graph = helper.make_graph(nodes, "norm", inputs, [helper.make_tensor_value_info("y", kind, ["N", 3, 4])], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", int(str(way["opset"])))], ir_version=8)


def expected(way: dict[str, object]) -> np.ndarray:
    axis = 1 if way["kind"] == "instance" else -1
    mean = X.mean(axis, keepdims=True)
    d = X if way["kind"] == "rms" else X - mean if way["sub"] == "x m" else mean - X
    power = d ** float(str(way["exponent"])) if way["square"] == "Pow" else d * d
    with np.errstate(invalid="ignore"):
        s = np.sqrt(power.mean(axis, keepdims=True) + epsilon(way))
    return (d / s if way["div"] == "d s" else s / d) * SCALE + SHIFT


def test_decomposed_norms_of_any_form_are_correct() -> None:
    for way in ways():
        found = HostSession(written_out(way), threads=1).run([X.astype(np.dtype(str(np.dtype(way["dtype"]))))])[0]
        np.testing.assert_allclose(found, expected(way), rtol=2e-3, atol=2e-4, err_msg=str(way))


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
@pytest.mark.parametrize("changed", [{"add": "e v"}, {"sub": "m x"}, {"div": "s d"}, {"exponent": 4.0}])
def test_every_target_on_this_host_is_correct(changed: dict[str, object], target: str, tmp_path: Path) -> None:
    way = {key: values[0] for key, values in WRITTEN.items()} | {"value": 0.5} | changed
    path = tmp_path / "norm.onnx"
    onnx.save(written_out(way), path)
    with open_engine(target, EngineSpec(path, 5, dtype="float32", divided=False)) as engine:
        np.testing.assert_allclose(engine(X.astype(np.float32)), expected(way), rtol=1e-3, atol=1e-4)


PADDED = """g (float[1,1,3,3] x) => (float[1,1,4,4] y) <int64[8] p={0,0,1,1,0,0,1,1}, float v={0}> {
    a = Pad(x, p, v)
    y = MaxPool<kernel_shape=[2,2]>(a) }"""
WIDE = """g (float[1,1,3,3] x) => (float[1,1,6,2] y) <int64[8] p={0,0,2,0,0,0,2,0}, float v={0}> {
    a = Pad(x, p, v)
    y = AveragePool<kernel_shape=[2,2]>(a) }"""
WHOLE = "g (int64[2] x, int64[2] q) => (int64[2] y) <int64 one={1}> { a = Div(one, x)\n y = Mul(a, q) }"


def test_zero_padding_is_not_fused_into_max_pool(save_onnx: SaveOnnx) -> None:
    x = np.full((1, 1, 3, 3), -1, np.float32)
    assert HostSession(save_onnx(PADDED)).run([x])[0][0, 0].tolist() == [
        [0] * 4,
        [0, -1, -1, 0],
        [0, -1, -1, 0],
        [0] * 4,
    ]
    found = HostSession(save_onnx(WIDE)).run([x])[0][0, 0, :, 0].tolist()
    assert found == [0, -0.5, -1, -1, -0.5, 0]


def test_whole_numbers_are_divided_first(save_onnx: SaveOnnx) -> None:
    assert HostSession(save_onnx(WHOLE)).run([np.asarray([3, 1]), np.asarray([7, 7])])[0].tolist() == [0, 7]


def test_onnx_runtime_alone_is_wrong(save_onnx: SaveOnnx) -> None:
    """If this fails, ONNX Runtime was fixed, and :data:`engine.backends.ort.WRONG_FUSIONS` can be shortened."""

    def bare(model: bytes, feed: list[np.ndarray], off: tuple[str, ...] = ()) -> np.ndarray:
        session = onnxruntime.InferenceSession(
            model, providers=["CPUExecutionProvider"], disabled_optimizers=[n for n in WRONG_FUSIONS if n not in off]
        )
        names = [one.name for one in session.get_inputs()]
        return np.asarray(session.run(None, dict(zip(names, feed, strict=True)))[0])

    usual = {key: values[0] for key, values in WRITTEN.items()} | {"value": 0.5}
    layer, rms = usual | {"add": "e v"}, usual | {"kind": "rms", "dtype": np.float64}
    x = X.astype(np.float32)
    off = ("LayerNormFusion", "LayerNormFusionL1")
    assert np.abs(bare(written_out(layer).SerializeToString(), [x], off) - expected(layer)).max() > 0.1
    off = ("SimplifiedLayerNormFusion",)
    assert np.abs(bare(written_out(rms).SerializeToString(), [X], off) - expected(rms)).max() > 0.1
    padded, whole = save_onnx(PADDED).read_bytes(), save_onnx(WHOLE).read_bytes()
    assert bare(padded, [np.full((1, 1, 3, 3), -1, np.float32)], ("Pad_Fusion",)).max() < 0
    assert bare(whole, [np.asarray([3, 1]), np.asarray([7, 7])], ("DivMulFusion",)).tolist() == [2, 7]
