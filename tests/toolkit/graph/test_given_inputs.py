"""Inputs from files set dynamic dimensions, and a dump is compared on its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import SaveOnnx

from engine import ConfigError, DataError, InputError
from toolkit.cli import execute

WEIGHTS = ", ".join(str(float(i % 7)) for i in range(32))
TOKENS = (
    f"net (int64[B, T] ids, float[B, T, 4] m) => (float[B, T, 4] y) <float[8, 4] w = {{{WEIGHTS}}}>"
    "{ e = Gather(w, ids) y = Mul(e, m) }"
)
IMAGE = "net (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) { y = Relu(x) }"


@pytest.fixture
def tokens(save_onnx: SaveOnnx, tmp_path: Path) -> tuple[str, str]:
    """Return a model with two dynamic dimensions, and a file with its inputs."""
    rng = np.random.default_rng(0)
    m = rng.standard_normal((2, 5, 4))  # float64, as NumPy makes it
    np.savez(tmp_path / "in.npz", ids=rng.integers(0, 8, (2, 5)), m=m)
    return str(save_onnx(TOKENS, "tokens.onnx")), str(tmp_path / "in.npz")


def test_shapes_from_data(tokens: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = tokens
    for words in (["--b", "sdaa"], ["--b", "null", "--threshold", "2"]):
        assert execute(["compare", model, "--data", data, *words]) == 0
        assert "2x5x4" in capsys.readouterr().out
    for target, out in (("onnx", "a.h5"), ("sdaa", "b")):
        pytest.importorskip("h5py")
        assert execute(["dump", "full", model, "--data", data, "--target", target, "--out", str(tmp_path / out)]) == 0
    a, b = str(tmp_path / "a.h5"), str(tmp_path / "b")
    capsys.readouterr()
    for words in (["--a", a], ["--b", b], ["--a", a, "--b", b], ["--data", b]):
        assert execute(["compare", model, *words]) == 0
        printed = capsys.readouterr().out
        assert "no bad node: 2 tensors compared" in printed
        assert "random" not in printed
        assert "other inputs" not in printed
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "other.npz", ids=rng.integers(0, 8, (2, 5)), m=rng.standard_normal((2, 5, 4)))
    assert execute(["compare", model, "--a", a, "--data", str(tmp_path / "other.npz")]) == 1
    printed = capsys.readouterr().out
    assert "input 'm' differs from that of dump a.h5" in printed
    assert "first bad node: ids (graph_input)" in printed


def test_dim_flag(save_onnx: SaveOnnx, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save_onnx(TOKENS))
    assert execute(["compare", model, "--dim", "T=5", "--batch_size", "2"]) == 0
    assert "2x5x4" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"--dim ids=1x128, .*--dim T=128"):
        execute(["compare", model])
    with pytest.raises(ConfigError, match=r"no dimension 'S'; .*: B, T"):
        execute(["compare", model, "--dim", "S=5"])


def test_batch_from_data(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save_onnx(IMAGE))
    np.save(tmp_path / "x.npy", np.ones((3, 3, 8, 8), np.float32))
    Image.new("RGB", (9, 7), "red").save(tmp_path / "p.png")
    assert execute(["compare", model, "--data", str(tmp_path / "x.npy")]) == 0
    assert "3x3x8x8" in capsys.readouterr().out
    assert execute(["compare", model, "--data", str(tmp_path / "p.png"), "--batch_size", "4"]) == 0
    assert "4x3x8x8" in capsys.readouterr().out
    np.save(tmp_path / "flat.npy", np.ones((3, 8, 8), np.float32))
    with pytest.raises(InputError, match=r"\[3, 8, 8\],.*\[N, 3,"):
        execute(["compare", model, "--data", str(tmp_path / "flat.npy")])
    with pytest.raises(DataError, match="No such file"):
        execute(["compare", model, "--data", str(tmp_path / "none.npy")])
