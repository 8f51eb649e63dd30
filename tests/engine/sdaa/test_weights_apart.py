"""Engines whose weights are held apart from the model: the same bits, less memory, and weights that are taken once."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import ROOT, RunPython, SaveOnnx

from engine import EngineSpec, open_engine
from engine.onnx import apart
from engine.sdaa.float16 import resolved, round_half

TEXT = """
g (float[N,M,48] x) => (float[N,M,40] y, float[N,M,64] z) {
  a = MatMul(x, w1)
  b = Add(a, c)
  r = Relu(b)
  h = MatMul(r, w2)
  n = Softmax<axis = -1>(h)
  o = MatMul(n, w2)
  y = MatMul(o, w3)
  z = Identity(o)
}
"""
ALONE = TEXT.replace("n = Softmax<axis = -1>(h)", "t = Transpose<perm = [1,0,2]>(h) n = Softmax<axis = 1>(t)").replace(
    "z = Identity(o)", "z = Identity(h)"
)
SHAPES = {"w1": (48, 64), "c": (64,), "w2": (64, 64), "w3": (64, 40)}
BIG, ROUNDS = 3, 2**17


def saved(save_onnx: SaveOnnx, kind: type[np.generic] = np.float32, text: str = TEXT, external: bool = False) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(5)
    for name, shape in SHAPES.items():
        made.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(kind), name))
    if kind is np.float16:
        for info in (*made.graph.input, *made.graph.output):
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    path = save_onnx(made)
    if external:
        onnx.save(made, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def both(monkeypatch: pytest.MonkeyPatch, apart_: bool) -> None:
    monkeypatch.setattr(apart, "MANY", 2**10 if apart_ else 2**40)
    monkeypatch.setattr(apart, "LARGE", 2**8)


def answers(path: Path, x: np.ndarray, **more: Any) -> list[np.ndarray]:
    with open_engine("sdaa", EngineSpec(path, **more)) as engine:
        x = x.astype(engine.input_dtype)
        first, again = engine([x]), engine([x])
        assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
        return [*first, np.array(engine.device_report()["memory_per_spa"])]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("text", "more"),
    [
        (TEXT, {"input_size": ((2, 5, 48),)}),
        (TEXT, {"dims": {"M": (3, 5)}}),
        (ALONE, {"dims": {"M": (5,)}}),
    ],
    ids=["one_plan", "two_plans", "dependent"],
)
def test_outputs_are_equal_bit_by_bit(
    text: str,
    more: Mapping[str, Any],
    dtype: str,
    kind: type[np.generic],
    external: bool,
    save_onnx: SaveOnnx,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = saved(save_onnx, kind, text, external)
    x = np.random.default_rng(1).standard_normal((7, 5, 48)).astype(np.float32)
    given = {"batch_size": 8, "dtype": dtype, **more}
    found = []
    for apart_ in (False, True):
        both(monkeypatch, apart_)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*samples depend on one another.*")
            found.append(answers(path, x, **given))
    for want, got in zip(*found, strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_saved_engines_and_passes_get_whole_models(
    dtype: str, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(save_onnx)
    x = np.random.default_rng(1).standard_normal((4, 5, 48)).astype(np.float32)
    given: dict[str, Any] = {"batch_size": 4, "input_size": ((1, 5, 48),), "dtype": dtype}
    both(monkeypatch, False)
    want = answers(path, x, **given)
    both(monkeypatch, True)
    passed = answers(path, x, **given, pass_path=ROOT / "engine/passes/default_pass.py")
    built = answers(path, x, **given, save_engine=True)
    with open_engine("sdaa", EngineSpec(path, **given)) as engine:
        assert engine.loaded  # type: ignore[attr-defined]
    loaded = answers(path, x, **given)
    for others in (passed, built, loaded):
        for one, other in zip(want, others, strict=True):
            np.testing.assert_array_equal(other, one)


def test_a_plan_takes_the_weights_only_if_no_other_follows(
    save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(monkeypatch, True)
    path = saved(save_onnx)
    with open_engine("sdaa", EngineSpec(path, 4, ((1, 5, 48),))) as engine:
        lowering = engine._lowering  # type: ignore[attr-defined]
        assert lowering._model is None
        assert lowering.weights.keys() == {"w1", "w2", "w3"}  # read again
    with open_engine("sdaa", EngineSpec(path, 4, dims={"M": (3, 5)})) as engine:
        kept = engine._lowering  # type: ignore[attr-defined]
        values = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
        for name, array in kept.weights.items():
            np.testing.assert_array_equal(array, values[name])


def test_release_frees_the_session(save_onnx: SaveOnnx) -> None:
    engine = open_engine("sdaa", EngineSpec(saved(save_onnx), 4, ((1, 5, 48),)))
    session = weakref.ref(engine._main.session)  # type: ignore[attr-defined]
    assert session() is not None
    engine.release()
    assert session() is None


@pytest.mark.parametrize("size", [7, 2**16 - 1, 2**16, 2**18 + 1])
def test_rounding_in_place(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size).astype(np.float32) * 10.0 ** rng.integers(-9, 6, size).astype(np.float32)
    values[:6] = [np.nan, np.inf, -np.inf, 65519.9, 65520, -0.0]
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).astype(np.float32)
    kept = values.copy()
    np.testing.assert_array_equal(round_half(values), want)
    np.testing.assert_array_equal(values, kept)
    assert round_half(values, values) is values
    np.testing.assert_array_equal(values, want)
    table = want.reshape(1, -1)
    assert round_half(table).shape == table.shape


def test_weights_that_are_rounded_for_some_readers_only() -> None:
    graph = onnx.GraphProto()
    for name, source in (("a", "a"), ("a:rounded", "a"), ("b:rounded", "b"), ("c", "c"), ("c:rounded", "c")):
        tensor = graph.initializer.add(name=name, data_type=1, dims=[4], data_location=1)
        tensor.external_data.add(key="location", value=source)
    model = onnx.ModelProto(graph=graph)
    weights = {"a": np.full(4, 0.1, np.float32), "b": np.full(4, 0.2, np.float32), "c": np.full(4, 0.5, np.float32)}
    spent = dict(weights)
    found = resolved(model, spent, spent)
    assert not spent
    assert found["a"] is weights["a"]
    assert found["a"][0] == np.float32(0.1)
    assert found["a:rounded"][0] == np.float32(np.float16(0.1))
    assert found["b:rounded"] is weights["b"]
    assert found["b:rounded"][0] == np.float32(np.float16(0.2))
    assert found["c"] is found["c:rounded"] is weights["c"]


MEASURE = """
import sys
import numpy as np
from engine import EngineSpec, open_engine
import engine.sdaa.engine, engine.sdaa.float16, engine.onnx.load

def megabytes(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(field))

before = megabytes("VmRSS")
with open_engine("sdaa", EngineSpec(sys.argv[1], 2, ((1, 1600),), dtype=sys.argv[2])) as engine:
    print(megabytes("VmHWM") - before)
    rows = np.random.default_rng(0).standard_normal((2, 1600)).astype(engine.input_dtype)
    print(np.asarray(engine([rows])).tobytes().hex())
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_model_over_100_megabytes(dtype: str, tmp_path: Path, run_python: RunPython) -> None:
    """The peak is the weights, what the session packs of them, and less than half as much for all else."""
    block = np.random.default_rng(0).standard_normal((1600, 1600)).astype(np.float32) / 40
    names = [f"w{i}" for i in range(10)]
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", name], [f"x{i + 1}"]) for i, name in enumerate(names)]
    ends = [onnx.helper.make_tensor_value_info(f"x{i}", 1, ["N", 1600]) for i in (0, len(names))]
    weights = [numpy_helper.from_array(np.roll(block, i, 0), name) for i, name in enumerate(names)]
    graph = onnx.helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights)
    path = tmp_path / "dense.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    size = path.stat().st_size / 1e6
    assert size > 100
    found = []
    for lines in ("", "import engine.onnx.apart; engine.onnx.apart.MANY = 2**40\n"):
        done = run_python("-c", lines + MEASURE, path, dtype)
        assert not done.stderr
        peak, values = done.stdout.split()
        found.append((float(peak), values))
    (light, got), (whole, want) = found
    assert got == want
    assert light < 2.5 * size
    assert light < whole - size
