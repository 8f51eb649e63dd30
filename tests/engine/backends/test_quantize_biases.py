"""Int8 of a Gemm with a bias that is not one number per column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser

from engine import ModelError
from engine.backends import HostSession, quantize as tools
from engine.backends.quantize import FULL, quantize
from engine.onnx import load_model

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,8] x) => (float[N,4] y)
{ hidden = Gemm<ATTRIBUTES>(x, w, b)  bent = Relu(hidden)  y = Gemm(bent, v) }"""


def network(bias: np.ndarray, folder: Path, *, transposed: bool = False) -> Path:
    rng = np.random.default_rng(0)
    model: ModelProto = parser.parse_model(TEXT.replace("<ATTRIBUTES>", "<transB = 1>" if transposed else ""))
    w = rng.normal(size=(6, 8) if transposed else (8, 6)).astype(np.float32)
    arrays = {"w": w, "v": rng.normal(size=(6, 4)).astype(np.float32), "b": bias.astype(np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in arrays.items())
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (1,), (), (1, 1)])
def test_a_bias_of_any_shape_is_quantised(shape: tuple[int, ...], transposed: bool, tmp_path: Path) -> None:
    path = network(np.random.default_rng(1).normal(size=shape), tmp_path, transposed=transposed)
    x = np.random.default_rng(2).normal(size=(64, 8)).astype(np.float32)
    (tmp_path / "int8.onnx").write_bytes(quantize(path, [{"x": x}], FULL))
    made = load_model(tmp_path / "int8.onnx")
    assert sum(node.op_type == "QuantizeLinear" for node in made.graph.node) >= 1
    (right,), (found,) = HostSession(load_model(path)).run([x]), HostSession(made).run([x])
    assert np.abs(found - right).max() < 0.05 * np.abs(right).max()


def test_a_bias_with_a_row_per_sample_stays_float32(tmp_path: Path) -> None:
    path = network(np.random.default_rng(1).normal(size=(16, 6)), tmp_path)
    x = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)
    (tmp_path / "int8.onnx").write_bytes(quantize(path, [{"x": x}], FULL))
    (right,), (found,) = (HostSession(load_model(file)).run([x]) for file in (path, tmp_path / "int8.onnx"))
    assert np.abs(found - right).max() < 0.05 * np.abs(right).max()


def test_a_refusal_does_not_quote_variables_of_the_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = network(np.zeros((1, 6)), tmp_path)
    monkeypatch.setattr(tools, "_flatten_biases", lambda model: None)  # so that the tools meet what they fail at
    x = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)
    with pytest.raises(ModelError) as caught:
        quantize(path, [{"x": x}], FULL)
    text = str(caught.value)
    assert "truth value" not in text
    assert str(path) in text
    assert "--dtype float32" in text
