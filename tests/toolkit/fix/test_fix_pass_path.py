"""Fixes based on a pass file, of a model with a fixed batch, and of a model that passes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from planted import NETS, planter_of, write, write_data
from support import ROOT, SaveOnnx

from engine import DataError
from engine.onnx import save_model, to_float16
from engine.passes import PassOptions
from toolkit.cli import execute
from toolkit.fix.fixing import fix
from toolkit.fix.trials import write_pass

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


def test_pass_file_keeps_its_passes(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path, base = save_onnx(NEGATED), tmp_path / "base_pass.py"
    base.write_text(BASE)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(260, 400, (20, 4)).astype(np.float32))
    words = ["fix", str(path), "--data", str(tmp_path / "data.npz"), "--metric", "close", "--tolerance", "0.01"]
    out = tmp_path / "out"
    assert execute([*words, "--pass_path", str(base), "--out", str(out), "--json", str(out / "fix.json")]) == 0
    found = json.loads((out / "fix.json").read_text())
    assert [row["name"] for row in found["rows"]] == [
        "square",
        "root",
        "end",
        "tanh",
    ]  # Tanh has no error: it stays float32
    assert found["culprits"] == ["square", "root"]
    assert any("includes the passes of" in note for note in found["notes"])
    options = PassOptions.load(out / "model_fix_pass.py")
    assert options.skip_ops == {"Tanh", "square", "root"}
    assert options.use_passes is not None
    mixed = onnx.load(str(out / "model_mixed.onnx"))
    assert "Neg" not in {node.op_type for node in mixed.graph.node}


def test_float32_nodes_are_not_candidates(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    path = save_onnx(NEGATED)
    np.savez(tmp_path / "data.npz", x=np.full((20, 4), 300, np.float32))
    base = write_pass(tmp_path / "base.py", ["Mul"], "given")
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01, pass_path=base)
    assert found.culprits == ["root"]
    assert found.pass_file is not None
    assert PassOptions.load(found.pass_file).skip_ops == {"Mul", "root"}


def test_default_pass_can_be_the_base(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    np.savez(tmp_path / "data.npz", x=np.full((20, 4), 300, np.float32))
    base = ROOT / "engine" / "passes" / "default_pass.py"
    found = fix(save_onnx(NEGATED), tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01, pass_path=base)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert found.pass_file is not None
    assert base.read_text().strip() in found.pass_file.read_text()


def test_pass_can_be_the_fix(tmp_path: Path) -> None:
    """The pass for ResNets folds the planted division into the convolution, which removes the overflow."""
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


def test_passing_model_is_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    words = ["fix", str(path), "--data", str(data), "--metric", "close", "--tolerance", "0.02", "--out", str(tmp_path)]
    assert execute([*words, "--json", str(tmp_path / "fix.json")]) == 0
    assert "the float16 form passes the gate (close" in capsys.readouterr().out
    assert json.loads((tmp_path / "fix.json").read_text())["verdict"] == "passes"
    assert not list(tmp_path.glob("*_pass.py"))
    assert execute([*words, "--baseline", str(path)]) == 0  # equal to the baseline, and precise enough


def test_models_with_different_nodes_are_an_error(tmp_path: Path) -> None:
    from engine import ModelError

    model, shape = NETS["conv"](1)
    path, data = write(model, tmp_path / "model.onnx"), write_data(tmp_path / "data.npz", shape)
    other, _ = NETS["conv"](3)
    other.graph.node[3].name = "renamed"
    with pytest.raises(ModelError, match=r"node '.*' differs"):
        fix(path, data, "close", tmp_path, baseline=write(other, tmp_path / "other.onnx"))


def test_float16_model_is_compared_with_float32_form(tmp_path: Path, save_onnx: SaveOnnx) -> None:
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


def test_input_without_batch_axis(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    """In a short last part, in the samples for ranking, and with its own size."""
    path = save_onnx(
        "g (float[4] by, float[N,4] x, bool up, float[T] shift) => (float[N,4] y) { [scale] z = Mul(x, by)"
        " [square] s = Mul(z, z) [root] r = Sqrt(s) [mean] m = ReduceMean(shift) [end] t = Add(r, m)"
        " [if] y = If (up) <then_branch = a () => (float[N,4] p) { p = Identity(t) },"
        " else_branch = b () => (float[N,4] q) { q = Neg(t) }> }"
    )
    x = np.random.default_rng(0).uniform(260, 400, (20, 4)).astype(np.float32)
    fixed = {"by": np.float32([1, 1.5, 2, 0.01]), "up": np.bool_(False), "shift": np.ones(5, np.float32)}
    data, out = tmp_path / "data.npz", tmp_path / "o.json"
    np.savez(data, x=x, **fixed)
    found = fix(path, data, "close", tmp_path / "out", tolerance=0.01, batch=8)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert len(found.trials[0].records) == 20
    assert execute(["overflow", str(path), "--data", str(data), "--json", str(out)]) == 1
    assert {row["name"]: row["elements"] for row in json.loads(out.read_text())["rows"]}["scale"] == 80
    np.savez(data, x=np.float32(1))
    with pytest.raises(DataError, match="batch axis"):
        fix(save_onnx("g (float x) => (float y) { y = Neg(x) }"), data, "close", tmp_path / "out")


def test_constant_node_beyond_float16(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        "g (float[N,4] x) => (float[N,4] y) { [million] c = Constant <value = float {1000000.0}> ()"
        " [thousand] k = Constant <value_float = 1000.0> ()"
        " [up] z = Mul(x, c) [down] w = Div(z, c) [end] y = Mul(w, k) }"
    )
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(1, 9, (20, 4)).astype(np.float32))
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01)
    assert (found.verdict, found.culprits) == ("fixed", ["up", "down"])
    assert found.mixed is not None
    assert found.mixed.metric == pytest.approx(1.0, abs=1e-3)


def test_integer_cast_in_float16_model(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    """Integers are stored as float16; the float32 form is exact, and node names are those of the file."""
    half = save_onnx(
        "g (int64[N,4] ids) => (float[N,4] y) <float[1] k = {0.001}> { [cast] x = Cast <to = 1> (ids)"
        " [square] s = Mul(x, x) [root] r = Sqrt(s) [end] y = Mul(r, k) }"
    )
    save_model(to_float16(onnx.load(str(half))), half)
    np.savez(tmp_path / "data.npz", ids=np.random.default_rng(0).integers(300, 900, (20, 4)))
    found = fix(half, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "root"])
    assert [node.name for node in found.nodes] == ["cast", "square", "root", "end"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model_fix_pass.py", "model_mixed.onnx"]


def test_pass_file_passes_but_mixed_model_fails(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    """The mixed ONNX rounds its inputs; the card with the pass file does not."""
    path = save_onnx(
        "g (float[N,4] x) => (float[N,4] y) <float[1] k = {0.00001}>"
        "{ [scale] z = Mul(x, k) [up] s = Mul(x, z) [root] r = Div(s, x) [end] y = Add(r, z) }"
    )
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(1e5, 2e5, (20, 4)).astype(np.float32))
    base = tmp_path / "base.py"
    base.write_text('skip_input_name = ["x"]\n')
    found = fix(path, tmp_path / "data.npz", "close", tmp_path / "out", tolerance=0.01, pass_path=base)
    assert found.verdict == "fixed"
    assert found.after is not None
    assert found.after.metric == pytest.approx(1.0, abs=1e-2)
    assert found.notes[0] == f"{tmp_path / 'out' / 'model_mixed.onnx'} does not pass the gate; use the pass file"
