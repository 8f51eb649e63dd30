"""Files of a model built node by node, compared with the reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from engine import EngineSpec, open_engine
from utils.export.constructed import write_constructed
from utils.export.onnx_files import ExportError, ModelNotes

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
double (float[batch,2] x) => (float[batch,2] y) { y = Add(x, x) }
"""


def build(dynamic: bool) -> onnx.ModelProto:
    return parser.parse_model(TEXT if dynamic else TEXT.replace("batch", "1"))


def test_three_files(tmp_path: Path) -> None:
    notes = ModelNotes(labels=["a", "b"], provenance={"weights": "constructed"})
    cases = [[np.ones((1, 2), np.float32)], [np.ones((3, 2), np.float32)]]
    written = write_constructed(build, cases, tmp_path / "m", notes)
    assert [one.path.name for one in written] == ["m.onnx", "m_dyn.onnx", "m_float16_dyn.onnx"]
    assert all(one.max_relative_error == 0 for one in written)
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m_dyn.onnx")) as engine:
        assert engine(np.full((2, 2), 3, np.float32)).tolist() == [[6, 6]] * 2
        assert engine.metadata["class_labels"] == '["a", "b"]'


def test_differing_file_is_not_written(tmp_path: Path) -> None:
    def differing(dynamic: bool) -> onnx.ModelProto:
        return build(True) if dynamic else parser.parse_model(TEXT.replace("batch", "1").replace("Add", "Mul"))

    with pytest.raises(ExportError, match=r"m.onnx: output 'y': .* above the tolerance.*; written: m_dyn.onnx, "):
        write_constructed(differing, [[np.full((1, 2), 5, np.float32)]], tmp_path / "m", ModelNotes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m_dyn.onnx", "m_float16_dyn.onnx"]
