"""The benchmark of ``teco fix`` finds what it plants; its tables come from the searches."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import ROOT

BENCHMARKS = ROOT / "benchmarks"
X = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def fix_runs() -> Any:
    pytest.importorskip("psutil")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS / "tools"))
        import fix_runs

        yield fix_runs


def layers() -> onnx.ModelProto:
    """Return eight linear layers with a LeakyRelu behind each."""
    rng, nodes, weights = np.random.default_rng(0), [], []
    for i in range(8):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.4, (16, 16)).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], f"mul{i}"))
        nodes.append(helper.make_node("LeakyRelu", [f"m{i}"], [f"x{i + 1}"], f"relu{i}", alpha=0.1))
    face = [helper.make_tensor_value_info(name, 1, ["N", 16]) for name in ("x0", "x8")]
    graph = helper.make_graph(nodes, "g", face[:1], face[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["overflow", "underflow", "weights", "attribute"])
def test_injected_faults_are_found_and_counted(
    kind: str, fix_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "x.npz", x0=X)
    onnx.save(layers(), str(tmp_path / "layers.onnx"))
    files = tmp_path / "layers.onnx", tmp_path / "x.npz"
    network = fix_runs.Network("layers", *files, fix_runs.Planter(layers(), [X]))
    row = fix_runs.searched(network, kind, 2, 0, tmp_path)
    assert (row.found, row.faults, list(row.missed), list(row.extra)) == (2, 2, [], [])
    assert len(row.planted) == (4 if kind in fix_runs.PRECISION else 2)
    assert row.nodes == 16 + len(row.planted) * (kind in fix_runs.PRECISION) // 2
    assert row.k_log2_n == 2 * np.log2(row.nodes)
    # The replay of the very search that ran takes as many runs, or more where it knows less.
    assert row.runs <= row.by_error <= row.by_graph
    assert row.runs <= row.bound
    fix_runs.show([row])
    assert f"layers                 {row.nodes} {kind:10}  2   2 of 2     0" in capsys.readouterr().out


def test_more_faults_with_a_seed_hold_the_fewer(fix_runs: Any) -> None:
    planter = fix_runs.Planter(layers(), [X])
    one, three = (set(planter.plant("weights", count, 4)[1]) for count in (1, 3))
    assert one < three
    with pytest.raises(AssertionError, match="only 8 of 8 nodes"):
        planter.plant("weights", 9, 0)


def test_every_model_has_every_kind(fix_runs: Any) -> None:
    work = list(fix_runs.cases(fix_runs.MODELS, quick=False))
    assert len(work) == len(set(work)) == 3 * 4 + 2 * 4 * 4 * 3


@pytest.mark.slow
def test_a_complete_run(fix_runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the export of the real networks, which takes longer than the searches."""
    if not importlib.util.find_spec("torchvision"):
        pytest.skip("torchvision is not installed")

    def export(name: str, folder: Path, samples: int, small: bool) -> tuple[Path, Path]:
        onnx.save(layers(), str(folder / "layers.onnx"))
        np.savez(folder / "x.npz", x=X, x0=X)
        return folder / "layers.onnx", folder / "x.npz"

    out = tmp_path / "runs.json"
    monkeypatch.setattr(fix_runs, "export", export)
    monkeypatch.setattr(sys, "argv", ["fix_runs.py", "--quick", "--models", "detector head", "--json", str(out)])
    assert fix_runs.main() == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["schema_version"], found["benchmark"], found["weights"]) == (1, "fix_runs", "random")
    assert [(row["kind"], row["found"]) for row in found["rows"]] == [(k, n) for k in fix_runs.KINDS for n in (1, 2)]
