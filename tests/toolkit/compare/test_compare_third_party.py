"""Third-party engine as the judged engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import RunPython, SaveOnnx

from engine import Array, EngineError
from engine.backends.ort import OnnxRuntimeEngine
from engine.registry import _registered
from model_config.cases.config import ROOT
from toolkit.cli import execute
from toolkit.dump.store import open_dump

TWO = "net (float[1, 8] x) => (float[1, 8] y, int64[1, 1] i) { a = Exp(x) y = Relu(a) i = ArgMax <axis = 1> (a) }"


class Card9(OnnxRuntimeEngine):
    """Engine with an error of 5 % in another precision."""

    default_dtype = "float16"

    def infer(self, inputs: list[Array]) -> list[Array]:
        y, i = super().infer(inputs)
        return [y * y.dtype.type(1.05), i]


class Short(Card9):
    """Engine that omits an output."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return super().infer(inputs)[:1]


class Broken(Card9):
    """Engine that raises an unknown exception."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        raise MemoryError("no room\non card 9")


@pytest.fixture
def model(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, engine in (("card9", Card9), ("short", Short), ("broken", Broken)):
        monkeypatch.setitem(_registered, name, engine)
    return str(save_onnx('<ir_version: 10, opset_import: ["" : 18]>' + TWO))


def test_third_party_outputs_are_compared(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["compare", model, "--b", "card9", "--threshold", "0.001"]) == 1
    printed = capsys.readouterr().out
    assert "target 'card9' does not expose intermediate tensors" in printed
    assert "first bad node: Relu_1 (Relu), diff2 0.0" in printed
    assert execute(["compare", model, "--b", "card9"]) == 0  # it is 5 % off, float16 by itself may be 1 %, a graph 10 %
    assert execute(["compare", model, "--a", "card9", "--b", "onnx", "--threshold", "0.001"]) == 1
    assert "accumulated, limit 0.01" in capsys.readouterr().out  # without isolated errors
    assert execute(["dump", "full", model, "--target", "card9", "--out", str(tmp_path / "d")]) == 0
    dump = open_dump(tmp_path / "d")
    assert {name: entry.dtype for name, entry in dump.outputs.items()} == {"x": "float32", "y": "float16", "i": "int64"}
    assert execute(["compare", model, "--a", str(tmp_path / "d"), "--b", "card9"]) == 0


def test_third_party_errors_are_one_line(model: str) -> None:
    with pytest.raises(EngineError, match=r"'short' returned 1 array for 2 outputs \(y, i\)"):
        execute(["compare", model, "--b", "short"])
    with pytest.raises(EngineError, match=r"'broken' failed: MemoryError: no room on card 9$"):
        execute(["compare", model, "--b", "broken"])


def test_installed_third_party_engine(model: str, tmp_path: Path, run_python: RunPython) -> None:
    info = tmp_path / "teco_vendor-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teco-vendor\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tecoinfer.engines]\nsdaa = vendor_card:Card9\n")
    (tmp_path / "vendor_card.py").write_text(
        "from engine.backends.ort import OnnxRuntimeEngine\nclass Card9(OnnxRuntimeEngine):\n    pass\n"
    )
    np.save(tmp_path / "x.npy", np.ones((1, 8), np.float32))
    words = ("-m", "toolkit.cli", "compare", model, "--data", tmp_path / "x.npy")
    done = run_python(*words, path=(ROOT, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "target 'sdaa' does not expose intermediate tensors" in done.stdout  # it is not the simulated card
    assert "no bad node: 2 tensors compared" in done.stdout
