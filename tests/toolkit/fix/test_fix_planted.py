"""Errors planted at random nodes are found in about k * log2(n) runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from planted import NETS, planter_of, samples, write
from support import SaveOnnx

from engine import EngineSpec, open_engine
from engine.passes import PassOptions
from model_config.results import Verdict
from toolkit.cli import execute
from toolkit.fix.fixing import Fix, fix
from toolkit.fix.guide import ranked
from toolkit.fix.search import smallest

KINDS = ("resnet50", "encoder", "detector")
PRECISION = ("overflow", "underflow")


def test_network_has_nodes_of_resnet50() -> None:
    model, _ = NETS["resnet50"](1)
    operators = [node.op_type for node in model.graph.node]
    assert len(operators) == 122
    assert {op: operators.count(op) for op in ("Conv", "Relu", "Add", "Gemm")} == {
        "Conv": 53, "Relu": 49, "Add": 16, "Gemm": 1}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["overflow", "underflow", "weights", "attribute"])
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.long)])
def test_injected_errors_are_found(name: str, kind: str, count: int, tmp_path: Path) -> None:
    planter = planter_of(name)
    wrong, planted = planter.plant(kind, count, seed=count)
    names = [node for fault in planted for node in fault.nodes]
    path, right = write(wrong, tmp_path / "wrong.onnx"), write(planter.model, tmp_path / "right.onnx")
    np.savez(tmp_path / "data.npz", x=samples(name))
    precision = kind in PRECISION
    how = {"tolerance": 0.02} if precision else {"tolerance": 1e-3, "baseline": right}
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", batch=8, **how)
    assert (found.verdict, found.culprits) == ("fixed" if precision else "model", names)
    # The search, and what runs before and after it. Underflow shows in the errors only, and takes two nodes a fault.
    k = 2 * count if kind == "underflow" else count
    assert len(found.trials) <= k * math.log2(len(found.nodes)) + 6
    assert found.after is not None
    assert found.after.metric == pytest.approx(1.0, abs=0.02 if precision else 1e-4)
    if kind == "overflow":
        assert set(names) <= found.overflows


@pytest.mark.slow
def test_written_files_pass_and_cost_is_reported(tmp_path: Path) -> None:
    planter = planter_of("resnet50")
    path = write(planter.plant("overflow", 2, 0)[0], tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=samples("resnet50"))
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.02, batch=8)
    assert found.before.verdict is Verdict.FAIL
    assert found.after is not None
    assert found.mixed is not None
    assert abs(found.after.relative_difference) < 0.02 > abs(found.mixed.relative_difference)
    assert found.pass_file is not None
    assert PassOptions.load(found.pass_file).skip_ops == set(found.culprits)
    assert found.cost is not None
    assert found.cost.float16 < min(found.cost.fixed, found.cost.float32)
    slow = [note for note in found.notes if "all-float32 is faster" in note]
    assert bool(slow) == (found.cost.fixed > found.cost.float32)
    assert found.model_file is not None
    kinds = {tensor.data_type for tensor in onnx.load(str(found.model_file)).graph.initializer}
    assert {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT} <= kinds
    with open_engine("onnx", EngineSpec(found.model_file)) as engine:  # the file runs by itself
        outputs = engine(samples("resnet50")[:2].astype(engine.inputs[0].dtype))
    assert np.isfinite(outputs).all()


def replayed(found: Fix, order: list[str], likely: int) -> int:
    """Return the trials of a search with the same culprits in another order."""
    asked: list[frozenset[str]] = []
    smallest(order, lambda names: bool(asked.append(names)) or names.issuperset(found.culprits), likely)
    return len(asked)


def test_overflow_in_any_sample_is_tried_first(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    """Two norms: one overflows for 40 of 64 samples, the other only for the last, which is not used for errors."""
    chain = " ".join(f"c{i + 1} = {op}(c{i})" for i, op in enumerate(["Tanh", "Sin", "Cos", "Softsign"] * 6))
    path = save_onnx(
        "two (float[N,12] x) => (float[N,12] y) { a, b, c0 = Split<axis = 1>(x) "
        f"a2 = Mul(a, a) a1 = Sqrt(a2) {chain} b2 = Mul(b, b) b1 = Sqrt(b2) y = Concat<axis = 1>(a1, b1, c24) }}"
    )
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.name = node.output[0]
    x = np.random.default_rng(0).normal(size=(64, 12)).astype(np.float32)
    x[:40, :4] *= 1000
    x[63, 4:8] *= 1000
    np.savez(tmp_path / "data.npz", x=x)
    found = fix(write(model, path), tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.005)
    assert (found.verdict, found.culprits) == ("fixed", ["a2", "a1", "b2", "b1"])
    assert found.overflows == {"a2", "a1", "b2", "b1"}
    order = ranked(found.nodes, found.errors, found.overflows)
    guided = replayed(found, order, len(found.overflows))
    by_error = replayed(found, ranked(found.nodes, found.errors), 1)
    assert guided == 7 < by_error - 3


def test_report_lists_repaired_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planter = planter_of("detector")
    planted, (fault,) = planter.plant("weights", 1, 0)
    path, right = write(planted, tmp_path / "wrong.onnx"), write(planter.model, tmp_path / "right.onnx")
    np.savez(tmp_path / "data.npz", x=samples("detector"))
    words = ["fix", str(path), "--data", str(tmp_path / "data.npz"), "--metric", "close", "--baseline", str(right)]
    assert execute([*words, "--out", str(tmp_path / "out"), "--html", str(tmp_path / "fix.html")]) == 0
    printed = capsys.readouterr().out
    assert f"1 of 27 nodes differ from the baseline's: {fault.nodes[0]}" in printed
    assert "after (repaired model): close 1 " in printed
    assert "pass file" not in printed
    assert "<svg" in (tmp_path / "fix.html").read_text()
