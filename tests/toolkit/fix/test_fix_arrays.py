"""``teco fix --task arrays``: mistakes of an export of a model without a task of its own are named, or mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engine import Array
from tecoinfer_modelzoo import evaluate
from toolkit.cli import execute
from utils.tasks.arrays.task import Arrays

pytestmark = pytest.mark.slow

CLASSES = """<ir_version: 8, opset_import: ["" : 17]>
m (float[N,8] x) => (float[N,5] y) { y = MatMul(x, w) }
"""

SUMS = """<ir_version: 8, opset_import: ["" : 17]>
m (float[N,64] x) => (float[N,5] y)
{
  squares = Mul(x, x)
  axis = Constant<value_ints = [1]>()
  total = ReduceSum(squares, axis)
  normed = Div(x, total)
  large = Mul(normed, thousand)
  y = MatMul(large, w)
}
"""


def saved(text: str, file: Path, **weights: Array) -> Path:
    model = onnx.parser.parse_model(text)
    tensors = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    model.graph.initializer.extend(tensors)
    onnx.save(model, file)
    return file


def fixed(folder: Path, model: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = folder / "result.json"
    data = ["--task", "arrays", "--data", str(folder / "val.npz"), "--out", str(folder / "out")]
    code = execute(["fix", str(model), *data, *words, "--json", str(result), "--", "--metric", "top1"])
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return code, found


def test_a_missing_softmax_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(8, 5)), rng.normal(size=(40, 8)).astype(np.float32)
    model = saved(CLASSES, tmp_path / "m.onnx", w=weights)
    scores = np.exp(x @ weights)
    np.savez(tmp_path / "val.npz", x=x, y=scores.argmax(axis=1))
    np.savez(tmp_path / "golden.npz", y=(scores / scores.sum(axis=1, keepdims=True)).astype(np.float32))
    code, found = fixed(tmp_path, model, "--golden", str(tmp_path / "golden.npz"))
    assert code == 0
    assert [row["name"] for row in found["rows"] if row["cured"] == "yes"] == ["missing softmax"]


def test_a_sum_beyond_float16_stays_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights, x = rng.normal(size=(64, 5)), rng.normal(0, 60, (40, 64)).astype(np.float32)
    model = saved(SUMS, tmp_path / "m.onnx", w=weights, thousand=np.array(1000.0))
    np.savez(tmp_path / "val.npz", x=x, y=(x @ weights).argmax(axis=1))
    assert evaluate(Arrays, ckpt=model, data=tmp_path / "val.npz", target="sdaa", metric=["top1"]).metric < 0.5
    code, found = fixed(tmp_path, model)
    assert (code, found["verdict"]) == (0, "fixed")
    after = evaluate(
        Arrays, ckpt=tmp_path / "out/m_named.onnx", data=tmp_path / "val.npz", target="sdaa", metric=["top1"],
        pass_path=str(tmp_path / "out/m_fix_pass.py"),
    )  # fmt: skip
    assert after.metric == 1
