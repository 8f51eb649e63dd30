"""Answers of the source framework that do not fit model and data are one line; those that fit are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine import Array, ConfigError
from toolkit.adapt.golden import explained
from toolkit.adapt.work import Record, Request, Work
from utils.arrays import npz_bytes

ROWS = 12


def tensor(name: str, *shape: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": "float32"}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Return the work on y = x @ w with 12 rows of data, after the stages that ``--golden`` needs."""
    weight = np.random.default_rng(0).normal(0, 1, (4, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 4), ("y", 3))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    (tmp_path / "forms").mkdir()
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "forms" / "m_dyn.onnx")
    x = np.random.default_rng(1).normal(0, 1, (ROWS, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x @ weight)
    facts: dict[str, dict[str, Any]] = {
        "export": {"ckpt": "m_dyn.onnx", "inputs": [tensor("x", "N", 4)], "outputs": [tensor("y", "N", 3)]},
        "task": {"task": "arrays"},
        "data": {"samples": ROWS, "place": "data.npz", "flags": {}},
    }
    records = {name: Record("", "", "done", 0.0, one) for name, one in facts.items()}
    return Work(Request(model="m.onnx", name="m", root=tmp_path, batch=4), tmp_path, records)


def answers(work: Work) -> Array:
    with np.load(work.folder / "data.npz") as held:
        found: Array = held["y"]
    return found


def golden(work: Work, **arrays: Array) -> Path:
    (work.folder / "golden.npz").write_bytes(npz_bytes(arrays))
    return work.folder / "golden.npz"


def test_same_outputs(work: Work) -> None:
    found = explained(work, golden(work, y=answers(work)))
    assert (found.reached, found.flags) == (True, {})
    assert "are those of golden.npz" in found.line


def test_a_last_step_explains(work: Work) -> None:
    powers = np.exp(answers(work))
    found = explained(work, golden(work, y=powers / powers.sum(axis=1, keepdims=True)))
    assert not found.reached
    assert "is explained by" in found.line
    assert "softmax" in found.line


def test_nothing_explains(work: Work) -> None:
    found = explained(work, golden(work, y=answers(work)[::-1]))
    assert not found.reached
    assert "nothing explains golden.npz" in found.line


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros((5, 3), np.float32)}, "'y' has 5 rows, and --data 12 samples"),
        ({"y": np.float32(1)}, "'y' has 0 rows"),
        ({"y": np.zeros((ROWS, 7), np.float32)}, "has rows of shape 7, and output 'y' of the model 3"),
        ({"a": np.zeros((ROWS, 3)), "b": np.zeros((ROWS, 3))}, "write one array for each, by name"),
        ({"x": np.zeros((ROWS, 4), np.float32)}, "it has the model's inputs"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, work: Work) -> None:
    with pytest.raises(ConfigError, match="--golden") as caught:
        explained(work, golden(work, **arrays))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files(work: Work, tmp_path: Path) -> None:
    (tmp_path / "answers.txt").write_text("cat\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"answers\.txt: task arrays compares arrays"):
        explained(work, tmp_path / "answers.txt")
    with pytest.raises(ConfigError, match="does not exist"):
        explained(work, tmp_path / "nothing.npz")
