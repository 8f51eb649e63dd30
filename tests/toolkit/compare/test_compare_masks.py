"""Masks in ``teco compare``: masked elements are excluded, and errors after the mask are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from masked import KEEP, MASKS, STEEP, graph, inputs
from onnx import numpy_helper
from support import SaveOnnx

from engine import ConfigError
from toolkit.cli import execute
from toolkit.compare.nodes import Comparison, compare_nodes
from toolkit.graph.nodes import MEMORY
from toolkit.graph.trace import traced


def compared(path: Path, length: int = 2, dtype: str = "float16", memory: int = MEMORY, **how: Any) -> Comparison:
    with traced(path, "onnx") as a, traced(path, "sdaa", dtype=dtype) as b:
        return compare_nodes(a, b, list(inputs(length).values()), memory=memory, **how)


@pytest.mark.parametrize("mask", MASKS)
def test_mask_is_not_a_bad_node(mask: str, save_onnx: SaveOnnx) -> None:
    for how in ({}, {"isolated": False}, {"memory": 2000}, {"dtype": "float32"}):
        found = compared(save_onnx(graph(mask)), **how)
        assert found.first_bad is None, (how, found.first_bad)
        assert any(row.masked for row in found.rows)
        assert any(note.startswith("excluded: ") for note in found.notes)


@pytest.mark.parametrize("mask", MASKS)
def test_overflowing_scores_after_mask_are_reported(mask: str, save_onnx: SaveOnnx) -> None:
    bad = compared(save_onnx(graph(mask, STEEP))).first_bad
    assert bad is not None
    assert "raw" in {name for node in (bad.node, *bad.fused) for name in node.outputs}


def test_fully_masked_row_is_reported(save_onnx: SaveOnnx) -> None:
    """float32 adds -3.4e38 to every score and computes the mean; float16 has minus infinity and returns NaN."""
    found = compared(save_onnx(graph("where")), length=0)
    assert found.first_bad is not None
    assert found.first_bad.tensor == "b"
    assert not any(row.masked for row in found.rows if row.tensor == "b")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scaled_mask_is_excluded(save_onnx: SaveOnnx, dtype: str) -> None:
    """0 times -3.4e38 is 0; 0 times minus infinity would be NaN, but scalars stay float32."""
    path = save_onnx(graph(f"{KEEP} f = Cast <to = 1> (kept) i = Sub(one, f) b = Mul(i, low) x = Add(s, b)"))
    assert compared(path, dtype=dtype).first_bad is None


def test_mask_that_is_an_output_is_compared(save_onnx: SaveOnnx) -> None:
    text = graph("where").replace("(float[2, 4, 8] y)", "(float[2, 4, 8] y, float[2, 1, 4] b)")
    found = compared(save_onnx(text))
    assert found.first_bad is not None
    assert found.first_bad.tensor == "b"


def test_unmasked_elements_are_compared(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    """In the sum of squares -3.4e38 hides every other element; without it, a wrong scale is detected."""
    model = save_onnx(graph(f"{KEEP} b = Where(kept, zero, low) h = Mul(b, one) x = Add(s, h)"))
    healthy = tmp_path / "healthy.onnx"
    healthy.write_bytes(model.read_bytes())
    wrong = onnx.load(model)
    node = next(node for node in wrong.graph.node if node.output[0] == "x")
    wrong.graph.initializer.append(numpy_helper.from_array(np.float32(0.01), "more"))
    node.op_type, node.input[:] = "Sum", ["s", "h", "more"]
    onnx.save(wrong, str(tmp_path / "wrong.onnx"))
    np.savez(tmp_path / "data.npz", **inputs())
    words = ["compare", str(tmp_path / "wrong.onnx"), "--a_model", str(healthy), "--data", str(tmp_path / "data.npz")]
    result = tmp_path / "found.json"
    assert execute([*words, "--b_dtype", "float32", "--json", str(result)]) == 1
    written = json.loads(result.read_text())
    assert written["first_bad"]["tensor"] == "x"
    assert next(row for row in written["rows"] if row["tensor"] == "x")["masked"] == 8


def test_dumps_store_masks(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save_onnx(graph("expanded")))
    for length, code in ((2, 0), (0, 1)):
        np.savez(tmp_path / "data.npz", **inputs(length))
        for name, target in (("host", "onnx"), ("card", "sdaa")):
            out = ["--out", str(tmp_path / f"{name}{length}"), "--data", str(tmp_path / "data.npz")]
            assert execute(["dump", "full", model, "--target", target, *out]) == 0
        capsys.readouterr()
        pair = [str(tmp_path / f"{name}{length}") for name in ("host", "card")]
        assert execute(["dump", "compare", *pair]) == code
        printed = capsys.readouterr().out
        assert ("no bad node" if code == 0 else "first bad node: Where") in printed
        assert execute(["compare", model, "--a", pair[0]]) == code
        with pytest.raises(ConfigError, match="is a dump; --a_model"):
            execute(["compare", model, "--a", pair[0], "--a_model", model])
        capsys.readouterr()
