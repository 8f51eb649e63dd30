"""Integers in bfloat16 models on target cpu: float32 for the nodes that are sensitive to rounding, no others."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import SaveOnnx, require_bfloat16

from engine import EngineSpec
from engine.backends.ort import OnnxRuntimeEngine
from engine.backends.ov import OpenVinoEngine
from engine.backends.ov_parts import exact_edges

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

WIDTH = 32
FREQUENCIES = ", ".join(f"{math.exp(-math.log(10000) * i / WIDTH):.9g}" for i in range(WIDTH))
TIMED = """g (float[N,64] x, KIND t) => (float[N,64] y, float[N,32] wave) <float[1,32] f = {FREQUENCIES}> {
    one = Constant <value_ints = [1]> ()
    column = Unsqueeze(t, one)
    CAST
    angle = Mul(number, f)
    wave = Sin(angle)
    other = Cos(angle)
    both = Concat <axis = 1> (wave, other)
    h = MatMul(both, w)
    s = Add(x, h)
    y = MatMul(s, w)
}"""


def timed(kind: str, save_onnx: SaveOnnx) -> Path:
    """Write a model that takes a timestep per sample, and gives its embedding through weights, and part of it as is."""
    cast = "number = Cast <to = 1> (column)" if kind.startswith("int") else "number = Identity(column)"
    text = TIMED.replace("FREQUENCIES", FREQUENCIES).replace("KIND", kind).replace("CAST", cast)
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return save_onnx(model)


def feed(dtype: type, rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((rows, 64)).astype(np.float32), rng.integers(300, 1000, rows).astype(dtype)]


def opened(path: Path, **options: object) -> OpenVinoEngine:
    return OpenVinoEngine(EngineSpec(ckpt=path, dtype="bfloat16", **options))  # type: ignore[arg-type]


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@needs_openvino
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("int64[N]", np.int64), ("int32[N]", np.int32), ("float[N]", np.float32), ("int64[3]", np.int64)],
)
def test_a_timestep_is_not_rounded(kind: str, dtype: type, save_onnx: SaveOnnx) -> None:
    """In bfloat16, 999 is 1000, and its embedding another one: 13 to 19 % off where 1 % is bfloat16's own error."""
    require_bfloat16()
    path = timed(kind, save_onnx)
    if kind.endswith("[3]"):
        model = onnx.load(str(path))
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
        onnx.save(model, str(path))
    with OnnxRuntimeEngine(EngineSpec(ckpt=path)) as baseline, opened(path, streams=2) as engine:
        assert [tensor.name for tensor in engine.inputs] == ["x", "t"]
        calls = [feed(dtype, rows) for rows in (3, 1, 5)]
        for inputs, call in [(inputs, engine.run_async(inputs)) for inputs in calls]:
            (y, wave), (want, exact) = call.result(), baseline(inputs)
            assert (y.dtype, wave.dtype, y.shape) == (np.float32, np.float32, want.shape)
            assert relative(wave, exact) < 1e-4
            assert relative(y, want) < 0.012


@needs_openvino
def test_a_model_without_integers_is_not_split(digits: Path) -> None:
    require_bfloat16()
    with opened(digits / "digits_dyn.onnx") as engine:
        assert len(engine._compiled) == 1


@needs_openvino
def test_a_model_of_exact_nodes_only(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (int64[N] t) => (float[N] y) { n = Cast <to = 1> (t)\n y = Sin(n) }")
    t = np.arange(300, 1000, 17)
    with opened(path) as engine:
        np.testing.assert_allclose(engine([t]), np.sin(t), atol=1e-4)


def test_arguments_passed_to_the_vendors_command(save_onnx: SaveOnnx) -> None:
    edges = exact_edges(onnx.load(str(timed("int64[N]", save_onnx))))
    assert edges == {"wave", "other"}


INDEX = """g (float[N,300] x) => (float[N] column) <float w = {20}> {
    r = Relu(x)
    i = ArgMax<axis = 1, keepdims = 0>(r)
    f = Cast<to = 1>(i)
    column = Mod<fmod = 1>(f, w)
}"""


def test_a_model_that_computes_an_index_of_its_activations_is_float32(save_onnx: SaveOnnx) -> None:
    assert exact_edges(onnx.load(str(save_onnx(INDEX)))) == {"column"}


@needs_openvino
def test_an_index_is_not_rounded(save_onnx: SaveOnnx) -> None:
    x = np.zeros((2, 300), np.float32)
    x[0, 299] = x[1, 277] = 1  # bfloat16 holds neither number
    with opened(save_onnx(INDEX)) as engine:
        np.testing.assert_array_equal(engine([x]), [19, 17])
