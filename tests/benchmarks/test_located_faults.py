"""The tools name planted faults in a small network, a decoder with masks and an LSTM, and nothing in healthy ones."""

from __future__ import annotations

import json
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import ROOT


@pytest.fixture(scope="module")
def located_faults() -> Any:
    pytest.importorskip("psutil")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "tools"))
        import located_faults

        yield located_faults


def layers(folder: Path) -> tuple[Path, Path]:
    """Write three linear layers with a norm and attention behind them, and their data; return both."""
    rng, weights = np.random.default_rng(0), []
    for i in range(3):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.3, (16, 16)).astype(np.float32), f"w{i}"))
    weights += [numpy_helper.from_array(np.ones(16, np.float32), "one")]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        helper.make_node("LayerNormalization", ["a", "one"], ["n"], "norm", epsilon=1e-5),
        helper.make_node("MatMul", ["n", "w1"], ["q"], "second"),
        helper.make_node("Transpose", ["q"], ["k"], "turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["o"], "mixed"),
        helper.make_node("MatMul", ["o", "w2"], ["y"], "third"),
    ]
    face = [helper.make_tensor_value_info(name, 1, ["N", 6, 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", face[:1], face[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "layers.onnx"
    )
    np.savez(folder / "layers.npz", x=rng.normal(size=(2, 6, 16)).astype(np.float32))
    return folder / "layers.onnx", folder / "layers.npz"


@pytest.mark.parametrize("kind", ["scaled", "swapped", "epsilon", "overflow", "attention"])
def test_injected_faults_are_reported(kind: str, located_faults: Any, tmp_path: Path) -> None:
    bench = located_faults.Bench(located_faults.Located("layers", *layers(tmp_path)), tmp_path)
    rows = list(bench.planted(kind, 0))
    assert [row.tool for row in rows] == (["compare", "overflow"] if kind in ("overflow", "attention") else ["compare"])
    assert all(row.found and row.named for row in rows), rows
    assert {row.planted[0] for row in rows} <= {"first", "second", "third", "norm", "scores"}


def test_nothing_is_reported_for_a_correct_model(located_faults: Any, tmp_path: Path) -> None:
    bench = located_faults.Bench(located_faults.Located("layers", *layers(tmp_path)), tmp_path)
    assert [(row.tool, row.named, row.found) for row in bench.healthy()] == [
        ("compare", "", True),
        ("overflow", "", True),
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_a_complete_run(
    located_faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("torchvision", "transformers", "skimage", "sklearn"):
        if find_spec(package) is None:  # not imported here: torchvision needs the project's helper for it
            pytest.skip(f"{package} is not installed")
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["located_faults.py", "--quick", "--json", str(out)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert located_faults.main() == 0
    assert "0 false alarms" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["share"] >= 0.95
    assert {row["kind"] for row in found["rows"]} >= {
        "healthy",
        "scaled",
        "swapped",
        "epsilon",
        "overflow",
        "attention",
    }
