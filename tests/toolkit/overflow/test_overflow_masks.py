"""Masks in ``teco overflow``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from masked import MASKS, SCORES, STEEP, graph, inputs
from support import SaveOnnx

from toolkit.cli import execute
from toolkit.fix.records import Feed
from toolkit.overflow import NodeRange, find_overflow


def ranges(path: Path, *lengths: int) -> dict[str, NodeRange]:
    parts = [Feed(list(inputs(length).values()), None, [f"s{length}a", f"s{length}b"]) for length in lengths]
    return {one.node.outputs[0]: one for one in find_overflow(path, parts, 2)}


@pytest.mark.parametrize("mask", MASKS)
def test_mask_does_not_overflow(mask: str, save_onnx: SaveOnnx) -> None:
    found = ranges(save_onnx(graph(mask)), 2, 3)
    assert not any(one.overflows or one.counts["beyond"] for one in found.values())
    assert not any(one.inherited for one in found.values())
    assert sum(one.masked for one in found.values()) > 0
    assert max(one.largest for one in found.values()) < 1000


@pytest.mark.parametrize("mask", MASKS)
def test_overflow_after_mask_is_first(mask: str, save_onnx: SaveOnnx) -> None:
    found = ranges(save_onnx(graph(mask, STEEP)), 2)
    assert next(name for name, one in found.items() if one.overflows) in ("raw", "s", "x")  # where the kernel ends


def test_overflow_of_masked_scores_is_reported(save_onnx: SaveOnnx) -> None:
    """The second sum inherits minus infinity, and also overflows in unmasked elements."""
    scores = SCORES.replace("s = Mul(raw, by)", "h = Sigmoid(raw) i = Add(h, one) s = Mul(i, large)")
    text = graph("where", scores).replace("x = Add(s, b)", "w = Add(s, b) x = Add(w, s)")
    found = ranges(save_onnx(text.replace("<float zero", "<float large = {28000.0}, float zero")), 2)
    assert [name for name, one in found.items() if one.overflows][:1] == ["x"]
    assert found["w"].masked


def test_fully_masked_row_overflows(save_onnx: SaveOnnx) -> None:
    found = ranges(save_onnx(graph("where")), 2, 0, 3)
    assert found["b"].overflows
    assert (found["b"].masked, found["b"].counts["saturated"], found["b"].triggers["saturated"]) == (3, 4, "s0b")


def test_excluded_elements_are_noted(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", **inputs())
    words = ["overflow", str(save_onnx(graph("where"))), "--data", str(tmp_path / "data.npz")]
    assert execute([*words, "--json", str(tmp_path / "found.json")]) == 0
    assert "excluded: 10 masked elements of 2 nodes from Where_5 on" in capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads((tmp_path / "found.json").read_text())["rows"]}
    assert (rows["Where_5"]["masked"], rows["Where_5"]["beyond"]) == (2, 0)
