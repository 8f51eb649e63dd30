"""Constants beyond float16 are found for any data, except those that stay float32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import SaveOnnx

from engine.onnx import load_model, save_model, to_float16
from toolkit.cli import execute
from toolkit.overflow import WeightRange, find_weights


def found(path: Path, pass_path: Path | None = None) -> dict[str, WeightRange]:
    return {one.name: one for one in find_weights(load_model(path), pass_path)}


def report(path: Path, folder: Path, *flags: str) -> tuple[int, dict]:
    out = folder / "report.json"
    code = execute(["overflow", str(path), "--shape", "x=2,3", "--json", str(out), *flags])
    return code, json.loads(out.read_text())


def large(save_onnx: SaveOnnx, form: str) -> Path:
    """Write a model that adds and subtracts a weight beyond float16, as an initialiser or as a node."""
    if form == "node":
        return save_onnx(
            "g (float[N,3] x) => (float[N,3] y) { w = Constant <value_floats = [1e6, 1.0, 1e-6]> ()"
            " [up] z = Add(x, w) [down] y = Sub(z, w) }"
        )
    return save_onnx(
        "g (float[N,3] x) => (float[N,3] y) <float[3] w = {1e6, 1.0, 1e-6}> { [up] z = Add(x, w) [down] y = Sub(z, w) }"
    )


@pytest.mark.parametrize("form", ["initialiser", "node"])
def test_infinite_weight(form: str, save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = report(large(save_onnx, form), tmp_path, "--html", str(tmp_path / "o.html"))
    out = capsys.readouterr().out
    assert code == 1
    assert "1 weight infinite in float16, the first is w, read by up (1 of 3 elements)" in out
    (row,) = [row for row in message["rows"] if row["op"] == "constant"]
    assert (row["name"], row["inf"], row["beyond"], row["below"], row["elements"]) == ("w", 1, 1, 1, 3)
    assert row["share"] == pytest.approx(2 / 3)
    assert (row["readers"], row["stored"], row["trigger"]) == (2, "yes", "read by up")
    assert "read by up" in (tmp_path / "o.html").read_text()


def test_float32_nodes_lose_no_values(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path, kept = large(save_onnx, "initialiser"), tmp_path / "kept_pass.py"
    kept.write_text('skip_ops = ["Add", "Sub"]\n')
    (one,) = found(path, kept).values()
    assert (one.float32, one.overflows, one.affected) == (True, False, False)
    assert found(path)["w"].overflows


def test_batch_norm_and_scalar_stay_float32(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(
        "g (float[N,3] x) => (float[N,3] y) <float[3] one = {1, 1, 1}, float[3] var = {4e7, 4e7, 4e7}, float k = {1e6}>"
        "{ [norm] z = BatchNormalization(x, one, one, one, var) [scale] y = Mul(z, k) }"
    )
    assert {name: (one.float32, one.overflows) for name, one in found(path).items()} == {
        "var": (True, False),
        "k": (True, False),
    }
    code, message = report(path, tmp_path)
    assert "2 weights beyond 65504 but read in float32, such as var, read by norm" in message["notes"]
    assert code == 1  # the product of both is beyond float16
    assert "infinite in float16" not in message["lead"]


def test_mask_may_saturate(save_onnx: SaveOnnx) -> None:
    text = (
        "g (float[N,3] x, bool[N,3] keep) => (float[N,3] y) <float[3] low = {-3.4e38, -3.4e38, -3.4e38},"
        " float[1] zero = {0}> { m = Where(keep, zero, low) s = Add(x, m) y = Softmax(s) END }"
    )
    assert [(one.mask, one.overflows) for one in found(save_onnx(text.replace(" END", ""))).values()] == [(True, False)]
    seen = text.replace("(float[N,3] y)", "(float[N,3] y, float[N,3] z)").replace("END", "z = Neg(s)")
    assert [(one.mask, one.overflows) for one in found(save_onnx(seen)).values()] == [(False, True)]
    high = text.replace(" END", "").replace("-3.4e38", "3.4e38")
    assert [(one.mask, one.overflows) for one in found(save_onnx(high)).values()] == [(False, True)]


def test_vanishing_weights(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folded with a variance of 1e9, nearly all of a convolution's weights are subnormal."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>g (float[N,3] x) => (float[N,8] y) { [product] y = MatMul(x, w) }'
    )
    weight = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32) * 1e-6
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = save_onnx(model)
    code, message = report(path, tmp_path)
    assert code == 0
    (row,) = [row for row in message["rows"] if row["op"] == "constant"]
    assert (row["below"], row["inf"], row["share"]) == (24, 0, 1.0)
    assert "1 weight mostly below 2^-14" in capsys.readouterr().out


def test_file_with_infinite_weights(save_onnx: SaveOnnx) -> None:
    """Float16 files of older exports and other tools may contain an infinite variance."""
    half = to_float16(load_model(large(save_onnx, "initialiser")))
    save_model(half, path := save_onnx(half, "half.onnx"))
    assert found(path)["w"].overflows


def test_correct_model_has_no_weight_rows(digits: Path, tmp_path: Path) -> None:
    assert not any(one.affected for one in found(digits / "digits_dyn.onnx").values())
