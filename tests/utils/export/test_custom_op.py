from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from engine import EngineSpec, open_engine

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_example(script: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("custom_op/custom_add.py", "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'custom_add.onnx'}: checked, not run: ONNX Runtime does not support custom::Add" in printed

    bare = onnx.load(tmp_path / "custom_add.onnx")
    onnx.checker.check_model(bare)
    [node] = bare.graph.node
    assert (node.domain, node.op_type, len(node.output)) == ("custom", "Add", 2)
    assert [(a.name, a.i) for a in node.attribute] == [("y", 1)]

    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "custom_add_standard_dyn.onnx")) as engine:
        first, second = engine(np.array([[1, 2, 3], [-4, 5, 6]]))
    np.testing.assert_array_equal(first, [[2, 3, 4], [-3, 6, 7]])
    np.testing.assert_array_equal(second, [[3, 4, 5], [-2, 7, 8]])
