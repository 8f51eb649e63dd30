"""Unusual and invalid models and values, with the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from support import DIGITS, RunPython, SaveOnnx

from toolkit.cli import main


@pytest.fixture
def teco(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command: exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["teco", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run


GRAPHS = {
    "loop": (
        """
        net (float[2, 3] x) => (float[2, 3] y, float[N, 2, 3] s)
        {
          n = Constant <value = int64 {3}> ()
          c = Constant <value = bool {1}> ()
          y, s = Loop (n, c, x) <body = b (int64 i, bool ci, float[2, 3] a) => (bool co, float[2, 3] o, float[2, 3] e)
            { co = Identity(ci) o = Add(a, x) e = Exp(o) }>
        }
        """,
        {"y": "compared", "s": "compared"},
        "nodes inside the bodies of Loop_2 are not listed",
    ),
    "scan": (
        """
        net (float[4, 3] x) => (float[3] y, float[4, 3] s)
        {
          z = Constant <value = float[3] {0.0, 0.0, 0.0}> ()
          y, s = Scan <num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] o, float[3] p)
            { o = Add(a, e) p = Identity(o) }> (z, x)
        }
        """,
        {"y": "compared", "s": "compared"},
        "nodes inside the bodies of Scan_1 are not listed",
    ),
    "optional": (
        "net (float[2, 3] x) => (float[2, 3] y) { o = Optional(x) g = OptionalGetElement(o) y = Relu(g) }",
        {"o": "optional, not an array of numbers", "y": "compared together with OptionalGetElement_1"},
        "1 optional tensor",
    ),
    "strings": (
        'net (float[2] x) => (float[2] y, string[1] t) { t = Constant <value_strings = ["a"]> () y = Relu(x) }',
        {"t": "string, not an array of numbers", "y": "compared"},
        "1 string tensor",
    ),
    "an input left out": (
        """
        net (float[1, 3, 4, 4] x) => (float[1, 3, 8, 8] y, float[1, 3, 4, 4] z)
        {
          s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
          m = Constant <value = float {0.5}> ()
          r = Abs(x)
          y = Resize <mode = "nearest"> (r, , s)
          z = Clip(r, , m)
        }
        """,
        {"y": "compared", "z": "compared"},
        "",
    ),
    "nothing in it": (
        "net (float[2, 0] x) => (float[2, 0] y, float[2] z) { y = Relu(x) z = ReduceSum <keepdims = 0> (y) }",
        {"y": "compared", "z": "compared"},
        "",
    ),
    "a scalar": ("net (float[] x) => (float[] y) { z = Exp(x) y = Neg(z) }", {"y": "compared"}, ""),
    "only NaN": (
        "net (float[2] x) => (float[2] y) { n = Sub(x, x) k = Div(n, n) y = Add(k, x) }",
        {"k": "compared", "y": "compared"},
        ": Div_1, Add_2",
    ),
    "a zero reference": (
        "net (float[2] x) => (float[2] y) { z = Sub(x, x) y = Add(z, x) }",
        {"z": "compared", "y": "compared"},
        "",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, save_onnx: SaveOnnx, tmp_path: Path, teco: Any) -> None:
    text, wanted, note = GRAPHS[name]
    path, result = save_onnx('<ir_version: 10, opset_import: ["" : 18]>' + text), tmp_path / "result.json"
    code, _, err = teco("compare", path, "--json", result)
    assert (code, err) == (0, "")
    made = json.loads(result.read_text())
    rows = {row["tensor"]: row for row in made["rows"]}
    assert {tensor: rows[tensor]["status"] for tensor in wanted} == wanted
    assert note in " | ".join(made["notes"])
    for row in made["rows"]:
        if row["status"] == "compared":
            assert row["cosine"] >= 0.999
            assert row["diff2"] < 1e-2
    out = tmp_path / "dump"
    assert teco("dump", "full", path, "--out", out)[0] == 0
    code, printed, _ = teco("compare", path, "--a", out)
    assert code == 0
    assert "no bad node" in printed
    assert teco("dump", "compare", out, out)[0] == 0


@pytest.mark.parametrize("kind", ["seq(float[2])", "optional(float[2])"])
def test_non_tensors_are_skipped(kind: str, save_onnx: SaveOnnx, tmp_path: Path, teco: Any) -> None:
    op = "SequenceConstruct" if kind.startswith("seq") else "Optional"
    text = f"net (float[2] x) => (float[2] y, {kind} s) {{ y = Exp(x) s = {op}(y) }}"
    path = save_onnx('<ir_version: 10, opset_import: ["" : 18]>' + text)
    code, printed, _ = teco("compare", path)
    assert code == 0
    assert f"numbers: 1 {'sequence' if kind.startswith('seq') else 'optional'} tensor" in printed
    assert "no bad node: 1 tensor compared" in printed
    assert teco("dump", "full", path, "--target", "sdaa", "--out", tmp_path / "d")[0] == 0
    assert "no bad node: 1 tensor" in teco("compare", path, "--a", tmp_path / "d")[1]
    assert "export the model with tensors" in teco("compare", path, "--b", "cpu")[2]  # an engine gives all of it


def test_an_empty_comparison_is_exit_code_2(save_onnx: SaveOnnx, teco: Any) -> None:
    path = save_onnx("net (float[2] x) => (seq(float[1]) s) { s = SplitToSequence(x) }")
    code, printed, _ = teco("compare", path)
    assert code == 2
    assert "nothing could be compared (s: sequence, " in printed


def test_folder_named_like_a_target_is_not_a_dump(tmp_path: Path, teco: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "sdaa"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert teco("compare", DIGITS / "digits.onnx")[0] == 0


def test_random_nodes_are_listed(save_onnx: SaveOnnx, teco: Any) -> None:
    path = save_onnx("net (float[2] x) => (float[2] y) { r = RandomNormalLike(x) y = Add(r, x) }")
    code, printed, _ = teco("compare", path)
    assert code == 1
    assert "RandomNormalLike_0 draw random numbers" in printed


def test_duplicate_and_missing_node_names(tmp_path: Path, teco: Any) -> None:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Exp", [f"t{i}"], [f"t{i + 1}"], name="same" if i < 2 else "") for i in range(3)]
    ends = [[info(name, TensorProto.FLOAT, [3])] for name in ("t0", "t3")]
    graph = helper.make_graph(nodes, "g", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    _, printed, _ = teco("compare", tmp_path / "m.onnx")
    assert [line.split()[0] for line in printed.splitlines()[2:5]] == ["same#0", "same#1", "Exp_2"]
    assert teco("dump", "once", tmp_path / "m.onnx", "--name", "same#1", "--out", tmp_path / "d")[0] == 0


def test_errors_are_one_line(save_onnx: SaveOnnx, tmp_path: Path, teco: Any) -> None:
    strange = save_onnx(
        '<ir_version: 10, opset_import: ["" : 18, "my" : 1]> net (float[2] x) => (float[2] y) { y = my.Odd(x) }'
    )
    for path, text in ((strange, "my:Odd"), ("none.onnx", "not exist")):
        code, _, err = teco("compare", path)
        assert code == 2
        assert err.count("\n") == 1, err
        assert text in err
    for words, text in (
        (["--b", "tensorrt"], "unknown target 'tensorrt'"),
        (["--a", tmp_path], "no manifest.json"),
        (["--a_dtype", "int3"], "int3"),
        (["--data", tmp_path / "x.npy"], "not a readable .npy"),
    ):
        code, _, err = teco("compare", DIGITS / "digits.onnx", *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert text in err


def test_engines_with_outputs_only_have_a_note(teco: Any) -> None:
    code, printed, _ = teco("compare", DIGITS / "digits.onnx", "--b", "cpu")
    assert code == 0
    assert "target 'cpu' does not expose intermediate tensors" in printed
    assert "no bad node: 1 tensor compared" in printed


WIDE = """
import sys
from pathlib import Path
from toolkit.compare.nodes import compare_nodes
from toolkit.dump.write import write_dump
from toolkit.graph.inputs import random_inputs
from toolkit.graph.trace import traced

def peak():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

path, out, memory = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) * 2**20
with traced(path, "onnx") as a, traced(path, "sdaa") as b:
    x = random_inputs(path)
    before = peak()
    if out == "compare":
        found = compare_nodes(a, b, x, memory=memory)
        assert found.first_bad is None and all(row.accumulated for row in found.rows), found.rows
    else:
        write_dump(a, x, a.nodes, Path(f"{out}{memory}"), memory=memory)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("what", ["compare", "dump"])
def test_memory_limit(what: str, save_onnx: SaveOnnx, tmp_path: Path, run_python: RunPython) -> None:
    """24 tensors of 4 MiB each are 96 MiB per engine, and a comparison has more than one copy."""
    count, small, large = 24, 32, 4096
    lines = "\n".join(f"t{i + 1} = {'Neg' if i % 2 else 'Abs'}(t{i})" for i in range(count))
    wide = save_onnx(f"net (float[1, 1048576] t0) => (float[1, 1048576] t{count}) {{ {lines} }}")
    (tmp_path / "wide.py").write_text(WIDE)
    peaks = {}
    for memory in (small, large):
        done = run_python(tmp_path / "wide.py", wide, "compare" if what == "compare" else tmp_path / "out", memory)
        assert done.returncode == 0, done.stderr
        peaks[memory] = float(done.stdout.split()[-1])
    assert peaks[large] > 90
    assert peaks[small] < small + 48  # what the runtime keeps for reuse comes on top


def test_int8_is_not_supported(save_onnx: SaveOnnx, teco: Any) -> None:
    path = save_onnx("net (float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }", "net.onnx")
    code, _, message = teco("compare", path, "--b", "cpu", "--b_dtype", "int8")
    assert (code, message.count("\n")) == (2, 1)
    assert f"{path}: int8" in message
