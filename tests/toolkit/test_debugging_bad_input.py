"""Errors of overflow and fix are one line with exit code 2, without a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planted import NETS, write, write_data
from support import ROOT, RunPython, SaveOnnx

from engine import TecoInferError
from toolkit.cli import execute

Arrays = dict[str, np.ndarray]

PLAIN = "g (float[N,4] x) => (float[N,4] y) { y = Mul(x, x) }"
IF = """g (float[N,4] x, bool c) => (float[N,4] y)
{ y = If (c) <then_branch = t () => (float[N,4] a) { a = Mul(x, x) }, else_branch = e () => (float[N,4] b) { b = Neg(x) }> }"""  # noqa: E501
LOOP = """g (float[N,4] x) => (float[N,4] y) <int64 n = {3}, bool go = {1}>
{ y = Loop (n, go, x) <body = b (int64 i, bool g, float[N,4] v) => (bool h, float[N,4] w) { h = Identity(g)  w = Add(v, v) }> }"""  # noqa: E501
SEQUENCE = "g (float[N,4] x) => (seq(float[N,4]) y) { y = SequenceConstruct(x, x) }"
TEXT = 'g (string[N] x) => (string[N] y) { y = Identity(x) }'  # fmt: skip
NONZERO = "g (float[N,4] x) => (int64[2,M] y) { y = NonZero(x) }"
KEPT = "g (float[N,4] x) => (float[M,4] y) <float[1] k = {0.5}> { m = Greater(x, k) i = NonZero(m) t = Transpose(i) y = GatherND(x, t) }"  # noqa: E501
TWICE = "g (float[N,4] x) => (float[N,4] y) { [same] z = Mul(x, x) [same] y = Sqrt(z) }"


def line(words: list[str]) -> str:
    """Return the one line of the error."""
    with pytest.raises(TecoInferError) as caught:
        execute(words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., str]:
    def make(**arrays: np.ndarray) -> str:
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return make


X = np.full((8, 4), 300, np.float32)


@pytest.mark.parametrize("command", ["overflow", "fix"])
@pytest.mark.parametrize(
    ("model", "arrays", "expected"),
    [
        (SEQUENCE, {"x": X}, "'y' is no"),
        (TEXT, {"x": X}, "'x' is float32 of shape (8, 4), the model takes object N"),
        (PLAIN, {"z": X, "q": X}, "lacks input 'x'; it contains: z, q"),
        (PLAIN, {"x": X[0]}, "the model takes float32 Nx4"),
        (PLAIN, {"x": X[:, :3]}, "the model takes"),
        (PLAIN, {"x": X.astype(np.int64)}, "'x' is int64"),
        (PLAIN, {"x": X[:0]}, "arrays have [0] samples"),
    ],
)
def test_mismatched_data(
    command: str,
    model: str,
    arrays: dict[str, np.ndarray],
    expected: str,
    save_onnx: SaveOnnx,
    data: Callable[..., str],
) -> None:
    words = [command, str(save_onnx(model)), "--data", data(**arrays)]
    assert expected in line([*words, "--metric", "close"] if command == "fix" else words)


def test_missing_files(save_onnx: SaveOnnx, data: Callable[..., str], tmp_path: Path) -> None:
    model = str(save_onnx(PLAIN))
    for command in ("overflow", "fix"):
        assert "does not exist" in line([command, str(tmp_path / "no.onnx"), "--data", data(x=X)])
        assert "no.npz" in line([command, model, "--data", str(tmp_path / "no.npz")])
        assert "no.py" in line([command, model, "--data", data(x=X), "--metric=close", f"--pass_path={tmp_path}/no.py"]
                               if command == "fix" else [command, model, f"--pass_path={tmp_path}/no.py"])  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--metric", "f1"], "unknown metric 'f1'; metrics: top1"),
        (["--metric", "top1"], "metric top1 needs labels"),
        (["--metric", "close", "--tolerance", "2"], "2 is not between 0 and 1"),
        (["--metric", "close", "--reference", "0.9"], "with --metric close pass --golden FILE.npz"),
        (["--metric", "close", "--golden", "g.npz", "--baseline", "b.onnx"], "--baseline cannot be combined"),
        (["--metric", "top1", "--reference", "1", "--pass_path", "p.py"], "--pass_path cannot be combined"),
        (["--metric", "top1", "--reference", "0.9"], "top1 needs labels"),
    ],
)
def test_invalid_flags(flags: list[str], expected: str, save_onnx: SaveOnnx, data: Callable[..., str]) -> None:
    assert expected in line(["fix", str(save_onnx(PLAIN)), "--data", data(x=X), *flags])


def test_unwritable_folder_is_an_error_before_search(
    save_onnx: SaveOnnx, data: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    words = ["fix", str(save_onnx(PLAIN)), "--data", data(x=X), "--metric", "close", "--out"]
    assert "file/out: no such path can exist; name another" in line([*words, str(tmp_path / "file" / "out")])
    assert "file: " in line([*words, str(tmp_path / "file")])


@pytest.mark.parametrize("model", [NONZERO, KEPT])
def test_outputs_without_row_per_sample_are_an_error(model: str, save_onnx: SaveOnnx, data: Callable[..., str]) -> None:
    words = ["fix", str(save_onnx(model)), "--data", data(x=X), "--metric", "close"]
    assert "not one row for each of 8 samples" in line(words)
    assert execute(["overflow", *words[1:4]]) == 0


@pytest.mark.filterwarnings("ignore:.*of a size not known beforehand")
def test_control_flow_is_one_float32_node(
    save_onnx: SaveOnnx, data: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_onnx(LOOP)
    given = data(x=np.full((8, 4), 10_000, np.float32))
    assert execute(["overflow", str(model), "--data", given]) == 1
    words = ["fix", str(model), "--data", given, "--metric", "close", "--out", str(tmp_path / "out")]
    assert execute([*words, "--tolerance", "0.01"]) == 1  # 80000 fits no float16 output
    assert "float32 on the card fails too" in capsys.readouterr().out
    branch = save_onnx(IF, "if.onnx")
    assert "--data" in line(["fix", str(branch)])
    assert execute(["overflow", str(branch)]) == 0
    words = ["fix", str(branch), "--metric", "close", "--data"]
    assert "'c' is float32 of shape (8, 4), the model takes bool scalar" in line([*words, data(x=X, c=X)])


def test_duplicate_names_are_distinguished(save_onnx: SaveOnnx, data: Callable[..., str], tmp_path: Path) -> None:
    words = ["fix", str(save_onnx(TWICE)), "--data", data(x=X), "--metric", "close", "--tolerance", "0.01"]
    assert execute([*words, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "model_named.onnx").is_file()
    assert "same#0" in (tmp_path / "model_fix_pass.py").read_text()


def test_model_failing_in_float32_is_reported(
    save_onnx: SaveOnnx, data: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = data(x=np.full((8, 4), 1e6, np.float32))  # beyond float16 before any node
    words = ["fix", str(save_onnx(PLAIN)), "--data", given, "--metric", "close", "--out", str(tmp_path)]
    assert execute(words) == 1
    assert "float32 on the card fails too" in capsys.readouterr().out
    assert not list(tmp_path.glob("*_pass.py"))


def test_ctrl_c_keeps_the_runs(tmp_path: Path, run_python: RunPython) -> None:
    model, shape = NETS["resnet50"](1)
    path, data = write(model, tmp_path / "model.onnx"), write_data(tmp_path / "data.npz", shape, 8)
    words = ["fix", str(path), "--data", str(data), "--metric", "close", "--out", str(tmp_path)]
    code = (
        "import sys, os, signal\n"
        "import toolkit.commands.fix as command\n"
        "command._hush = lambda trial: os.kill(os.getpid(), signal.SIGINT)\n"
        "from toolkit.cli import main\n"
        f"sys.argv[1:] = {words}\n"
        "main()\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 130
    where = tmp_path / "model_fix_trials.json"
    assert done.stderr.splitlines() == [f"interrupted after 1 runs; they are in {where}"]
    assert '"what": "all nodes float32"' in where.read_text()


def test_command_prints_one_line(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    words = ["fix", str(save_onnx(PLAIN)), "--data", str(tmp_path / "no.npz")]
    done = subprocess.run(
        [sys.executable, "-m", "toolkit.cli", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
