"""Target cpu computes what target onnx computes, also where OpenVINO would narrow numbers or lose NaN."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from favoured_openvino import favour_openvino
from support import ROOT, SaveOnnx

from engine import EngineSpec, ModelError, open_engine
from engine.backends import ov_guard
from engine.backends.ov import OpenVinoEngine
from engine.backends.ov_guard import Guard, Probe
from engine.backends.ov_guards_kept import guard_of
from engine.base import Array
from tecoinfer_modelzoo.cache import write_entry

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

INT64 = np.array([2**40 + 3, -7, 2**31, 5, -(2**31) - 1, 2**53 + 1], np.int64)
SMALL = np.array([3, -7, 100, 5, -1, 0], np.int64)
TIMES = np.array([1.7e9 + 0.25, 1.7e9 + 1, 1.7e9 - 3, 1.7e9, 1.7e9 + 1e-3, 2e9])
DIVISORS = """g (int32[6] x, int32[6] d) => (int32[6] y) <int32 one = {1}> { BODY }"""
NAN = np.array([np.nan, -1, 2, np.inf, -np.inf, 0.5], np.float32)
PLAIN = np.array([0.1, -1, 2, 3, -0.25, 0.5], np.float32)
TABLE = "float[8] t = {0, 1, 2, 3, 4, 5, 6, 7}"


@pytest.fixture(autouse=True)
def openvino_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    favour_openvino(monkeypatch, tmp_path / "cache")


def both(path: Path, *arrays: Array, **options: Any) -> tuple[list[Array], list[Array], str]:
    """Return what targets onnx and cpu give, and what computes on cpu."""
    with open_engine("onnx", EngineSpec(ckpt=path, **options)) as exact:
        want = exact(list(arrays))
    with open_engine("cpu", EngineSpec(ckpt=path, **options)) as engine:
        got, said = engine(list(arrays)), engine.describe()
    return as_list(want), as_list(got), said


def agree(path: Path, *calls: Array) -> str:
    """Compare targets onnx and cpu on calls of one input; return what computes on cpu."""
    with open_engine("onnx", EngineSpec(ckpt=path)) as exact, open_engine("cpu", EngineSpec(ckpt=path)) as engine:
        for array in calls:
            same(as_list(engine(array)), as_list(exact(array)))
        return engine.describe()


def as_list(outputs: Any) -> list[Array]:
    return outputs if isinstance(outputs, list) else [outputs]


def same(got: list[Array], want: list[Array]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        if other.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


WHOLE = {
    "a constant modulus": ("int64", f"int64 m = {{8}}, {TABLE}", "h = Mod(x, m)\n y = Gather(t, h)"),
    "a product first": (
        "int64",
        f"int64 k = {{1000003}}, int64 m = {{8}}, {TABLE}",
        "p = Mul(x, k)\n h = Mod(p, m)\n y = Gather(t, h)",
    ),
    "a large constant": (
        "int64",
        f"int64 k = {{2654435761}}, int64 m = {{8}}, {TABLE}",
        "p = Mul(x, k)\n h = Mod(p, m)\n y = Gather(t, h)",
    ),
    "the sign of a remainder": ("int64", "int64 m = {-7}", "h = Mod(x, m)\n y = Cast <to = 1> (h)"),
    "a quotient": ("int64", "int64 m = {3}", "h = Div(x, m)\n y = Cast <to = 1> (h)"),
    "a difference": ("int64", "int64 m = {2147483647}", "h = Sub(x, m)\n y = Cast <to = 1> (h)"),
    "a comparison": ("int64", "int64 m = {4294967296}", "h = Less(x, m)\n y = Cast <to = 1> (h)"),
    "as it is": ("int64", "float z = {0}", "h = Identity(x)\n y = Cast <to = 1> (h)"),
    "a sum over an axis": (
        "int64",
        "int64[1] a = {0}",
        "h = ReduceSum(x, a)\n h2 = Expand(h, n)\n y = Cast <to = 1> (h2)",
    ),
}


def whole_model(kind: str, weights: str, body: str) -> str:
    return f"g ({kind}[6] x) => (float[6] y) <{weights}, int64[1] n = {{6}}> {{ {body} }}"


@pytest.mark.parametrize("case", WHOLE)
def test_whole_numbers(case: str, save_onnx: SaveOnnx) -> None:
    agree(save_onnx(whole_model(*WHOLE[case])), INT64, SMALL)


def test_small_whole_numbers_stay_on_openvino(save_onnx: SaveOnnx) -> None:
    path = save_onnx(whole_model(*WHOLE["a constant modulus"]))
    guard = guard_of(path)
    assert not guard.refusal
    assert 2**20 < guard.bounds["x"][1] < 2**31
    with OpenVinoEngine(EngineSpec(path), guard) as engine:
        engine([SMALL])
        assert engine._judge is None
        engine([INT64])
        assert engine._judge is not None


def test_a_hash_before_a_tower(save_onnx: SaveOnnx) -> None:
    """The relative error was 0.17 here."""
    text = """g (int64[1,16,16] x) => (float[1,4,16,16] y) <int64 m = {97}, int64[4] order = {0, 1, 2, 3}> {
        h = Mod(x, m)
        e = Gather(table, h)
        p = Transpose <perm = [0, 3, 1, 2]> (e)
        a = Conv <pads = [1, 1, 1, 1]> (p, w1)
        b = Relu(a)
        y = Conv <pads = [1, 1, 1, 1]> (b, w2)
    }"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    rng = np.random.default_rng(0)
    for name, shape in {"table": (97, 4), "w1": (8, 4, 3, 3), "w2": (4, 8, 3, 3)}.items():
        weight = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    x = rng.integers(-(2**62), 2**62, (1, 16, 16))
    want, got, said = both(save_onnx(model), x)
    assert said.startswith("OpenVINO")
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        "y = Sub(x, k)",
        "d = Sub(x, k)\n f = Cast <to = 1> (d)\n y = Cast <to = 11> (f)",
        "y = Identity(x)",
        "y = Reshape(x, n)",
        "y = Concat <axis = 0> (x)",
        "y = Gather(x, order)",
        "i = Cast <to = 7> (x)\n y = Cast <to = 11> (i)",
        "f = Cast <to = 1> (x)\n y = Cast <to = 11> (f)",
        "r = Reshape(x, n)\n f = Cast <to = 1> (r)\n y = Cast <to = 11> (f)",
        "b = Greater(x, k)\n y = Cast <to = 11> (b)",
    ],
)
def test_doubles(body: str, save_onnx: SaveOnnx) -> None:
    weights = "double k = {1.7e9}, int64[1] n = {6}, int64[6] order = {5, 4, 3, 2, 1, 0}"
    path = save_onnx(f"g (double[6] x) => (double[6] y) <{weights}> {{ {body} }}")
    want, got, _ = both(path, TIMES)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)


@pytest.mark.parametrize("peepholes", [True, False])
def test_peephole_weights_of_an_lstm(peepholes: bool, save_onnx: SaveOnnx) -> None:
    """OpenVINO ignores them."""
    names = ["x", "w", "r", *(["", "", "", "", "p"] if peepholes else [])]
    node = onnx.helper.make_node("LSTM", names, ["", "y"], hidden_size=3)
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 12, 2), "r": (1, 12, 3), "p": (1, 9)}
    weights = [onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (4, 1, 2))
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 1, 3))
    graph = onnx.helper.make_graph([node], "g", [x], [y], weights)
    path = save_onnx(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    assert ("peephole" in guard_of(path).refusal) == peepholes
    want, got, _ = both(path, rng.standard_normal((4, 1, 2)).astype(np.float32))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    ["int8", "uint8", pytest.param("int32", marks=pytest.mark.slow), pytest.param("uint32", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Mod", "BitShift", "Neg", "Abs"])
def test_numbers_that_wrap(kind: str, op: str, save_onnx: SaveOnnx) -> None:
    limits = np.iinfo(kind)
    rng = np.random.default_rng(0)
    x = rng.integers(limits.min, limits.max, 6, endpoint=True).astype(kind)
    x[:2] = limits.min, limits.max
    y = rng.integers(1, 5, 6).astype(kind)
    if op in ("Neg", "Abs"):
        text, arrays = f"g ({kind}[6] x) => ({kind}[6] y) {{ y = {op}(x) }}", [x]
    else:
        shift = '<direction = "LEFT">' if op == "BitShift" else ""
        text, arrays = f"g ({kind}[6] x, {kind}[6] z) => ({kind}[6] y) {{ y = {op} {shift} (x, z) }}", [x, y]
    path = save_onnx(text)
    try:
        open_engine("onnx", EngineSpec(ckpt=path)).release()
    except ModelError:
        pytest.skip("ONNX Runtime has no kernel for it")
    want, got, _ = both(path, *arrays)
    same(got, want)


HIDING = {
    "Relu": "y = Relu(x)",
    "Max": "y = Max(x, zero)",
    "Min": "y = Min(zero, x)",
    "Clip": "y = Clip(x, zero, one)",
    "Exp": "y = Exp(x)",
    "ReduceMax": "m = ReduceMax <keepdims = 1> (x)\n y = Expand(m, n)",
    "MaxPool": "u = Unsqueeze(x, front)\n m = MaxPool <kernel_shape = [3], pads = [1, 1]> (u)\n y = Squeeze(m, front)",
    "Sigmoid": "y = Sigmoid(x)",
    "Greater": "b = Greater(x, zero)\n y = Cast <to = 1> (b)",
    "Cast": "i = Cast <to = 6> (x)\n y = Cast <to = 1> (i)",
    "Softmax": "y = Softmax(x)",
}


def hiding_model(body: str) -> str:
    weights = "float zero = {0}, float one = {1}, int64[1] n = {6}, int64[2] front = {0, 1}"
    return f"g (float[6] x) => (float[6] y) <{weights}> {{ {body} }}"


@pytest.mark.parametrize("op", HIDING)
def test_nan_in_an_input(op: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(hiding_model(HIDING[op]))
    assert agree(path, NAN, PLAIN).startswith("OpenVINO")


BORN = {
    "Sqrt": "n1 = Sqrt(x)",
    "Log": "n1 = Log(x)",
    "0 / 0": "d = Sub(x, x)\n n1 = Div(d, d)",
    "x / 0": "d = Sub(x, x)\n i = Div(x, d)\n n1 = Sub(i, i)",
    "Pow": "n1 = Pow(x, half)",
    "exp overflows": "b = Mul(x, large)\n e = Exp(b)\n n1 = Sub(e, e)",
    "Reciprocal": "d = Sub(x, x)\n i = Reciprocal(d)\n n1 = Mul(i, d)",
    "Acos": "n1 = Acos(x)",
    "an infinite mask": "k = Add(x, minus)\n n1 = Softmax(k)",
}


@pytest.mark.parametrize("how", BORN)
@pytest.mark.parametrize(
    "op", ["Relu", *(pytest.param(op, marks=pytest.mark.slow) for op in ("Clip", "Max", "ReduceMax"))]
)
def test_nan_that_is_made_inside(how: str, op: str, save_onnx: SaveOnnx) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        + hiding_model(f"{BORN[how]}\n {HIDING[op].replace('(x', '(n1').replace(', x)', ', n1)')}")
    )
    minus = np.full(6, -np.inf, np.float32)
    for name, value in {"half": np.float32(0.5), "large": np.float32(1e3), "minus": minus}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    want, got, _ = both(save_onnx(model), PLAIN)
    assert np.isnan(want[0]).any() or op == "ReduceMax"  # ONNX Runtime's own gives a number, if NaN is not the first
    same(got, want)


@pytest.mark.parametrize(
    ("body", "probes"),
    [
        ("q = Mul(x, x)\n s = Sqrt(q)\n y = Relu(s)", 0),
        ("q = Pow(x, two)\n v = Add(q, eps)\n s = Sqrt(v)\n d = Div(x, s)\n y = Relu(d)", 0),
        ("d = Div(x, two)\n y = Relu(d)", 0),
        ("m = Neg(x)\n e = Exp(m)\n a = Add(e, one)\n s = Div(x, a)\n y = Relu(s)", 1),
        ("s = Sqrt(x)\n y = Mul(s, two)", 0),
        ("s = Sqrt(x)\n y = Relu(s)", 1),
    ],
)
def test_values_that_cannot_be_nan_have_no_probe(body: str, probes: int, save_onnx: SaveOnnx) -> None:
    text = (
        f"g (float[6] x) => (float[6] y) <float two = {{2}}, float one = {{1}}, float eps = {{0.00001}}> {{ {body} }}"
    )
    path = save_onnx(text)
    guard = guard_of(path)
    assert (guard.refusal, guard.bounds, len(guard.probes)) == ("", {}, probes)
    want, got, said = both(path, PLAIN)
    same(got, want)
    assert said.startswith("OpenVINO")


def test_floats_that_index(save_onnx: SaveOnnx) -> None:
    path = save_onnx(f"g (float[6] x) => (float[6] y) <{TABLE}> {{ i = Cast <to = 7> (x)\n y = Gather(t, i) }}")
    said = agree(path, np.arange(6, dtype=np.float32), np.arange(-6, 0, dtype=np.float32))
    assert said.startswith("OpenVINO")
    path = save_onnx("g (float[6] x) => (int64[6] y) { y = Cast <to = 7> (x) }")
    agree(path, NAN, PLAIN * np.float32(1e11))


def test_an_index_out_of_range_is_an_error_as_on_onnx(save_onnx: SaveOnnx) -> None:
    path = save_onnx(f"g (int64[N] x) => (float[N] y) <{TABLE}> {{ y = Gather(t, x) }}")
    with open_engine("cpu", EngineSpec(ckpt=path)) as engine:
        assert engine.describe().startswith("OpenVINO")
        np.testing.assert_array_equal(engine(np.array([0, 7, -8])), [0, 7, 0])
        with pytest.raises(Exception, match="out of"):
            engine(np.array([0, 8, 1]))
        np.testing.assert_array_equal(engine(np.array([1])), [1])


SHAPES = {
    "flattened": (
        "float",
        "s = Shape(x)\n f = Gather <axis = 0> (s, first)\n r = Concat <axis = 0> (f, rest)\n y = Reshape(x, r)",
    ),
    "positions": (
        "float",
        "s = Shape(x)\n n = Gather(s, scalar)\n p = Range(scalar, n, step)\n i = Cast <to = 1> (p)\n"
        "u = Unsqueeze(i, last)\n y = Mul(x, u)",
    ),
    "the largest": ("float", "m = ArgMax <axis = 1, keepdims = 1> (x)\n f = Cast <to = 1> (m)\n y = Add(x, f)"),
    "cut": ("float", "y = Slice(x, first, far, first, step1)"),
    "how many": (
        "float",
        "z = NonZero(x)\n s = Shape(z)\n c = Gather <axis = 0> (s, step1)\n f = Cast <to = 1> (c)\n y = Mul(x, f)",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_arithmetic_of_shapes_stays_on_openvino(case: str, save_onnx: SaveOnnx) -> None:
    weights = (
        "int64[1] first = {0}, int64[1] rest = {-1}, int64 scalar = {0}, int64 step = {1}, int64[1] last = {1}, "
        "int64[1] far = {9223372036854775807}, int64[1] step1 = {1}"
    )
    path = save_onnx(f"g (float[N,4] x) => (float[N,4] y) <{weights}> {{ {SHAPES[case][1]} }}")
    assert not guard_of(path).refusal
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    want, got, said = both(path, x)
    same(got, want)
    assert said.startswith("OpenVINO")


def test_a_product_of_sizes_that_may_not_fit(save_onnx: SaveOnnx) -> None:
    body = "s = Size(x)\n q = Mul(s, s)\n m = Mod(q, k)\n f = Cast <to = 1> (m)\n y = Mul(x, f)"
    path = save_onnx(f"g (float[N,4] x) => (float[N,4] y) <int64 k = {{1009}}> {{ {body} }}")
    agree(path, *(np.ones((rows, 4), np.float32) for rows in (3, 20000)))  # 80000 squared is beyond int32


def test_bodies(save_onnx: SaveOnnx) -> None:
    text = """g (float[4] x, int64[4] i, bool b) => (float[4] y) {
        y = If (b) <
            then_branch = a () => (float[4] p) { big = Constant <value = int64 {3037000500}> ()
                q = Mul(i, big)
                p = Cast <to = 1> (q) },
            else_branch = c () => (float[4] r) { r = Sqrt(x) }
        >
    }"""
    path = save_onnx(text)
    for flag in (True, False):
        want, got, _ = both(path, np.abs(PLAIN[:4]), INT64[:4], np.array(flag))
        same(got, want)


@pytest.mark.parametrize("body", ["y = Div(x, d)", "y = Mod(x, d)", "e = Add(d, one)\n y = Div(x, e)"])
def test_a_divisor_that_may_be_0_is_not_tried(body: str, save_onnx: SaveOnnx) -> None:
    """A trial must not divide by 0, which would end the process."""
    path = save_onnx(DIVISORS.replace("BODY", body))
    x, d = np.arange(6, dtype=np.int32), np.full(6, 2, np.int32)
    want, got, said = both(path, x, d)
    same(got, want)
    assert said.startswith("ONNX Runtime")


def test_a_slice_step_of_0_does_not_end_the_process(save_onnx: SaveOnnx) -> None:
    """ONNX Runtime refuses it; OpenVINO divides by it, and the process ends."""
    text = """g (float[6] x, int64[1] step) => (float[M] y)
    <int64[1] first = {0}, int64[1] last = {6}, int64[1] axis = {0}> {
        y = Slice(x, first, last, axis, step)
    }"""
    want, got, said = both(save_onnx(text), PLAIN, np.array([2]))
    same(got, want)
    assert said.startswith("ONNX Runtime")


def test_bfloat16_names_the_reason(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (double[6] x) => (double[6] y) <double k = {1.7e9}> { y = Sub(x, k) }")
    with pytest.raises(ModelError, match="double"):
        open_engine("cpu", EngineSpec(ckpt=path, dtype="bfloat16"))


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("batch", ["N", "4"])
def test_parallel_calls(streams: int, batch: str, save_onnx: SaveOnnx) -> None:
    """NaN in one of them does not change what the others give."""
    path = save_onnx(f"g (float[{batch},6] x) => (float[{batch},6] y) {{ y = Relu(x) }}")
    with open_engine("cpu", EngineSpec(ckpt=path, streams=streams)) as engine:
        assert engine.describe().startswith("OpenVINO")
        inputs = [np.tile(NAN if i % 2 else PLAIN, (1 + i, 1)) for i in range(6)]
        calls = [engine.run_async(x) for x in inputs]
        for x, call in zip(inputs, calls, strict=True):
            np.testing.assert_array_equal(call.result(), np.maximum(x, 0))
    with pytest.raises(Exception, match="release"):
        engine(inputs[0])


@pytest.mark.parametrize("path", sorted((ROOT / "example").rglob("*.onnx")), ids=lambda path: path.stem)
def test_the_zoos_models_may_be_openvinos(path: Path) -> None:
    """Their guards have no limits that a call can reach and no probes, so they run on OpenVINO at full speed."""
    guard = guard_of(path)
    assert (guard.refusal, guard.probes) == ("", ())
    assert guard.longest > 2**30


# ------------------------------------------------------------------------------------------------------- what is kept


def test_a_guard_is_computed_once(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_onnx(whole_model(*WHOLE["a constant modulus"]))
    first = guard_of(path)
    refuse_to_analyse(monkeypatch)
    assert guard_of(path) == first


def refuse_to_analyse(monkeypatch: pytest.MonkeyPatch) -> None:
    def analysed(model: object) -> Guard:
        raise AssertionError

    monkeypatch.setattr("engine.backends.ov_analysis.analysed", analysed)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.pop("refusal"),
        lambda entry: entry.update(refusal=3),
        lambda entry: entry.update(bounds=[1]),
        lambda entry: entry.update(bounds={"x": [1]}),
        lambda entry: entry.update(bounds={"x": ["1", 2]}),
        lambda entry: entry.update(longest=0),
        lambda entry: entry.update(probes=[["x", 1]]),
        lambda entry: entry.update(probes=[["x", "low", 1.0]]),
        lambda entry: entry.update(probes=3),
    ],
)
def test_a_cached_guard_of_wrong_types_is_computed_again(
    change: Callable[[dict[str, Any]], Any], save_onnx: SaveOnnx, tmp_path: Path
) -> None:
    path = save_onnx(whole_model(*WHOLE["a constant modulus"]))
    first = guard_of(path)
    (file,) = (tmp_path / "cache" / "openvino_guards").glob("*.json")
    entry = json.loads(file.read_text())
    entry.pop("entry_sha256")
    change(entry)
    write_entry("openvino_guards", file.stem, entry)
    assert guard_of(path) == first


def test_calls_that_a_guard_admits() -> None:
    guard = Guard(bounds={"i": (-3, 9)}, longest=100)
    whole = {"i": np.array([-3, 9])}
    assert guard.admits(whole)
    assert not guard.admits({"i": np.array([-4, 9])})
    assert not guard.admits({"i": np.array([10])})
    assert guard.admits({"j": np.array([10])})
    assert not guard.admits({"j": np.zeros(101, np.int8)})
    assert not guard.admits({"x": np.zeros((0, 3), np.float32)})
    for dtype in (np.float16, np.float32, np.float64):
        assert guard.admits({"x": np.array([1, -65504], dtype)})
        for bad in (np.nan, np.inf, -np.inf):
            assert not guard.admits({"x": np.array([[1, bad]], dtype)})
            assert not guard.admits({"x": np.array([[1, 0], [bad, 1]], dtype)[:, 0]})
    assert not guard.admits({"x": np.array([1e30], np.float32)})


def test_values_that_a_probe_allows() -> None:
    assert Probe("x").holds(4.0, None, None)
    assert not Probe("x").holds(float("nan"), None, None)
    assert not Probe("x").holds(float("inf"), None, None)
    assert Probe("x", -2, 2).holds(8.0, -2.0, 2.0)
    assert not Probe("x", -2, 2).holds(8.0, -2.5, 2.0)
    assert not Probe("x", -2, 2).holds(8.0, -2.0, 2.5)


def test_an_engine_of_another_cache_folder_gives_the_same(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_onnx(whole_model(*WHOLE["a large constant"]))
    first = guard_of(path)
    assert first.refusal
    monkeypatch.setenv("TECO_CACHE_DIR", str(path))  # a file: nothing can be kept there
    assert guard_of(path) == first
    assert ov_guard.TABLE.is_file()
