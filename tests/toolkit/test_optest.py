from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import DIGITS, ROOT, RunPython, SaveOnnx

from engine.base import ConfigError, ModelError
from toolkit.cli import execute
from toolkit.commands.optest import main
from toolkit.optest import run_case, worst_error, write_case

MODEL = """g (float[N,4] x) => (float[N,4] y) <float[4,4] w={1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> {
    a = MatMul(x, w)
    b = Exp(a)
    y = Relu(b) }"""


def case_of(save_onnx: SaveOnnx, node: str, tmp_path: Path, scale: float = 0.01) -> Path:
    x = np.full((2, 4), scale, np.float32)
    return write_case(save_onnx(MODEL), node, tmp_path / "case", [x], batch=2).folder


@pytest.mark.parametrize("wanted", ["Exp_1", "b", "1", "#1"])
def test_a_node_is_found_by_name_tensor_or_position(wanted: str, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    folder = case_of(save_onnx, wanted, tmp_path)
    cut = onnx.load(folder / "model.onnx")
    assert [node.op_type for node in cut.graph.node] == ["Exp"]
    onnx.checker.check_model(cut, full_check=True)


def test_weights_come_along_and_the_rest_is_data(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    folder = case_of(save_onnx, "MatMul_0", tmp_path)
    cut = onnx.load(folder / "model.onnx")
    assert ([t.name for t in cut.graph.initializer], [i.name for i in cut.graph.input]) == (["w"], ["x"])
    with np.load(folder / "data.npz") as data:
        np.testing.assert_array_equal(data["in0"], np.full((2, 4), 0.01, np.float32))
        assert data["out0"].shape == (2, 4)


def test_an_overflow_shows_on_the_card_in_float16_only(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    case = write_case(save_onnx(MODEL), "b", tmp_path / "case", [np.full((1, 4), 0.6, np.float32)])
    found = {(one.target, one.dtype): one for one in run_case(case)}
    assert found["onnx", "float32"].passed
    assert found["sdaa", "float32"].passed
    assert not found["sdaa", "float16"].passed


def test_the_case_runs_outside_the_repository(tmp_path: Path, run_python: RunPython) -> None:
    out, told = tmp_path / "case", tmp_path / "out.json"
    node = onnx.load(DIGITS / "digits.onnx").graph.node[0].output[0]
    assert execute(["optest", "digits", node, "--out", str(out), "--json", str(told)]) == 0
    assert [row["result"] for row in json.loads(told.read_text(encoding="utf-8"))["rows"]] == ["pass"] * 3
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=out, path=(ROOT,))
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_a_node_with_a_body_brings_what_the_body_reads(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(
        """g (bool c, float[2] x) => (float[2] y) { z = Abs(x)
        y = If (c) <then_branch = a () => (float[2] p) { p = Abs(z) },
            else_branch = b () => (float[2] q) { q = Neg(z) }> }"""
    )
    case = write_case(path, "y", tmp_path / "case", [np.asarray(False), np.asarray([1.5, -2], np.float32)])
    assert set(case.inputs) == {"c", "z"}
    assert run_case(case)[0].passed


def test_bad_input_is_one_clear_line(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(MODEL)
    with pytest.raises(ConfigError, match="did you mean 'Exp_1'"):
        main([str(path), "Exp_2"])
    sequence = save_onnx(
        "g (float[2] x) => (float[4] y) { s = SequenceConstruct(x, x)\n y = ConcatFromSequence <axis=0> (s) }", "s.onnx"
    )
    with pytest.raises(ModelError, match="sequence"):
        write_case(sequence, "s", tmp_path / "case", [np.zeros(2, np.float32)])
    with pytest.raises(Exception, match="cannot be written"):
        write_case(path, "b", path, [np.zeros((1, 4), np.float32)])


def test_the_error_takes_infinities_and_nan_seriously() -> None:
    inf, one = np.asarray([np.inf, 1.0]), np.asarray([1.0, 1.0])
    assert worst_error([inf], [inf]) == 0
    assert worst_error([inf], [one]) == np.inf
    assert worst_error([np.asarray([np.nan, 1.0])], [one]) == np.inf
    assert worst_error([np.zeros(3)], [np.zeros(2)]) == np.inf
