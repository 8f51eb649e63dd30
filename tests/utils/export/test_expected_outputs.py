"""Expected outputs of an export: one array per output, and one line if there are others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from engine import EngineSpec, open_engine
from utils.export.onnx_files import Expected, ExportError, ModelNotes, Variant, write_onnx_files

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,6] x) => (float[N,2] values, int64[N,2] places)
<int64[1] two = {2}> { values, places = TopK(x, two) }"""


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_the_only_output_are_not_outputs(rows: int, tmp_path: Path) -> None:
    model = parser.parse_model(TEXT.replace(", int64[N,2] places", ""))
    x = np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with open_engine("onnx", EngineSpec(tmp_path / "m.onnx")) as engine:
        found = engine(x)
        wrong, right = Expected([x], list(found)), Expected([x], [found])
    with pytest.raises(ExportError) as caught:
        write_onnx_files(tmp_path / "net", [Variant("", model, [wrong])], ModelNotes())
    text = str(caught.value)
    assert "\n" not in text
    assert ("[engine(x)]" in text) == (rows > 1)  # of one row the shape differs
    (made,) = write_onnx_files(tmp_path / "net", [Variant("", model, [right])], ModelNotes())
    assert made.max_relative_error == 0


def test_a_missing_output_is_named(tmp_path: Path) -> None:
    model = parser.parse_model(TEXT)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    with pytest.raises(ExportError, match=r"1 expected arrays .* for 2 outputs \(values, places\)"):
        write_onnx_files(tmp_path / "net", [Variant("", model, [Expected([x], [x[:, :2]])])], ModelNotes())
