"""A fix on top of a pass file, of a model with a fixed batch, and of one that needs none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from planted import NETS, planter_of, write, write_data
from support import ROOT, SaveOnnx

from engine.onnx_graph import save_model, to_float16
from engine.passes.options import PassOptions
from toolkit.cli import execute
from toolkit.fix.fixing import fix
from toolkit.fix.pass_file import write_pass

BASE = '''"""Somebody's passes."""

skip_ops = "Tanh"
layout = "plain"


def use_passes(model):
    """Replace a double negation."""
    nodes = [node for node in model.graph.node if node.op_type != "Neg"]
    nodes[0].input[:] = ["x", "x"]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
'''

NEGATED = """g (float[N,4] x) => (float[N,4] y)
{ [no] n = Neg(x) [yes] p = Neg(n) [square] s = Mul(p, p) [root] r = Sqrt(s) [tanh] t = Tanh(r) [end] y = Add(t, r) }"""


def test_a_pass_file_keeps_its_passes_and_gets_more_nodes(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path, base = save_onnx(NEGATED), tmp_path / "base_pass.py"
    base.write_text(BASE)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(260, 400, (20, 4)).astype(np.float32))
    words = ["fix", str(path), "--data", str(tmp_path / "data.npz"), "--metric", "close", "--tolerance", "0.01"]
    out = tmp_path / "out"
    assert execute([*words, "--pass_path", str(base), "--out", str(out), "--json", str(out / "fix.json")]) == 0
    found = json.loads((out / "fix.json").read_text())
    assert [row["name"] for row in found["rows"]] == ["square", "root", "tanh", "end"]
    assert found["culprits"] == ["square", "root"]
    assert any("has been through" in note for note in found["notes"])
    options = PassOptions.load(out / "model_fix_pass.py")
    assert options.skip_ops == {"Tanh", "square", "root"}
    assert options.use_passes is not None
    mixed = onnx.load(str(out / "model_mixed.onnx"))
    assert "Neg" not in {node.op_type for node in mixed.graph.node}


def test_what_a_pass_file_keeps_in_float32_is_no_candidate(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    path = save_onnx(NEGATED)
    np.savez(tmp_path / "data.npz", x=np.full((20, 4), 300, np.float32))
    base = write_pass(tmp_path / "base.py", ["Mul"], "given")
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01, pass_path=base)
    assert found.culprits == ["root"]
    assert found.pass_file is not None
    assert PassOptions.load(found.pass_file).skip_ops == {"Mul", "root"}


def test_the_zoos_own_passes_can_be_kept(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    np.savez(tmp_path / "data.npz", x=np.full((20, 4), 300, np.float32))
    base = ROOT / "engine" / "passes" / "default_pass.py"
    found = fix(save_onnx(NEGATED), tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01, pass_path=base)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert found.pass_file is not None
    assert base.read_text().strip() in found.pass_file.read_text()


def test_a_pass_may_be_the_cure(tmp_path: Path) -> None:
    """The pass for ResNets folds the planted division into the convolution, so that nothing overflows any more."""
    path = write(planter_of("resnet50").plant("overflow", 1, 5)[0], tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", NETS["resnet50"](1)[1], 8)
    base = ROOT / "engine" / "passes" / "resnet" / "resnet_pass.py"
    found = fix(path, data, "close", tmp_path / "out", tolerance=0.02, batch=8, pass_path=base)
    assert (found.verdict, found.culprits) == ("passes", [])


@pytest.mark.parametrize("batch", [3, 8])
def test_a_model_with_a_fixed_batch(batch: int, tmp_path: Path, save_onnx: SaveOnnx) -> None:
    path = save_onnx(NEGATED.replace("N,4", f"{batch},4"))
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(260, 400, (20, 4)).astype(np.float32))
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert len(found.trials[0].records) == 20


def test_a_model_that_passes_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    words = ["fix", str(path), "--data", str(data), "--metric", "close", "--tolerance", "0.02", "--out", str(tmp_path)]
    assert execute([*words, "--json", str(tmp_path / "fix.json")]) == 0
    assert "passes the gate as it is" in capsys.readouterr().out
    assert json.loads((tmp_path / "fix.json").read_text())["verdict"] == "passes"
    assert not list(tmp_path.glob("*_pass.py"))
    assert execute([*words, "--baseline", str(path)]) == 0  # equal to the baseline, and precise enough


def test_models_that_cannot_be_compared_node_by_node(tmp_path: Path) -> None:
    from engine.base import ModelError

    model, shape = NETS["conv"](1)
    path, data = write(model, tmp_path / "model.onnx"), write_data(tmp_path / "data.npz", shape)
    other, _ = NETS["conv"](3)
    other.graph.node[3].name = "renamed"
    with pytest.raises(ModelError, match="is not the same in both models"):
        fix(path, data, "close", tmp_path, baseline=write(other, tmp_path / "other.onnx"))


def test_a_float16_model_is_fixed_against_its_float32_form(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    half = tmp_path / "half.onnx"
    save_model(to_float16(onnx.load(str(save_onnx(NEGATED)))), half)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(260, 400, (20, 4)).astype(np.float32))
    found = fix(half, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["half_fix_pass.py", "half_mixed.onnx"]
    words = ["overflow", str(half), "--data", str(tmp_path / "data.npz"), "--json", str(tmp_path / "o.json")]
    assert execute(words) == 1
    rows = {row["name"]: row for row in json.loads((tmp_path / "o.json").read_text())["rows"]}
    assert rows["square"]["inf"] == rows["square"]["beyond"] == 80
    assert 260**2 < rows["square"]["largest"] < 400**2 * 1.01


def test_token_ids_and_other_dynamic_dimensions(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        "g (int64[N,T] ids) => (float[N,T,2] y) <float[3,2] table = {1, 2, 300, 301, 5, 6}>"
        "{ [gather] e = Gather(table, ids) [square] s = Mul(e, e) [root] r = Sqrt(s) [end] y = Add(r, e) }"
    )
    np.savez(tmp_path / "data.npz", ids=np.random.default_rng(0).integers(0, 3, (20, 6)))
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
