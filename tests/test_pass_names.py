"""Pass files have the same names and errors in every command and in Python."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, SaveOnnx, made

from engine import EngineSpec, PassError, find_pass, open_engine
from engine.passes import PassOptions
from engine.tecoinfer_pytorch import TecoInferEngine
from tecoexec import cli as tecoexec, save_engine
from toolkit.cli import execute
from utils.pipeline.flags.options import options
from utils.pipeline.session import engine_spec
from utils.tasks.find import find_task

MODEL = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
NAMES = ["default_pass.py", "default_pass", "resnet/resnet_pass.py", "resnet/resnet_pass", "own_pass.py", "own_pass"]
ZOO = Path(ROOT) / "engine" / "passes"

Command = Callable[[Path, str], object]


@pytest.fixture
def model(save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_pass.py").write_text('skip_ops = ["Relu"]\n')
    np.savez(tmp_path / "d.npz", x=np.ones((4, 4), np.float32))
    return save_onnx(MODEL)


def _teco(*words: str) -> Command:
    def run(path: Path, name: str) -> None:
        assert execute([*(str(path) if word == "MODEL" else word for word in words), "--pass_path", name]) == 0

    return run


def _main(run: Callable[[Sequence[str]], int], *words: str) -> Command:
    def main(path: Path, name: str) -> None:
        assert run(["--onnx", str(path), *words, "--pass_path", name]) == 0

    return main


def _script(path: Path, name: str) -> None:
    task = find_task("classification")
    words = ["--pass_path", name, "--target", "null"]
    opt = options("A script.", task, "valid", words, ckpt=path, batch_size=1, data_path=path)
    assert engine_spec(made(task, opt), "model", 1).pass_path is not None


def _historical(path: Path, name: str) -> None:
    TecoInferEngine(ckpt=path, target="sdaa", pass_path=name).release()


def _python(path: Path, name: str) -> None:
    open_engine("sdaa", EngineSpec(path, pass_path=Path(name))).release()


COMMANDS: dict[str, Command] = {
    "compare": _teco("compare", "MODEL"),
    "profile": _teco("profile", "MODEL"),
    "profile on onnx": _teco("profile", "MODEL", "--target", "onnx", "--runs", "1"),
    "overflow": _teco("overflow", "MODEL"),
    "dump": _teco("dump", "full", "MODEL", "--target", "sdaa", "--out", "dump"),
    "fix": _teco("fix", "MODEL", "--data", "d.npz", "--metric", "close", "--out", "fixed"),
    "tecoexec": _main(tecoexec.execute, "--target", "sdaa", "--input_shapes", "4*4", "--iterations", "1"),
    "save_engine": _main(save_engine.execute, "--input_shapes", "4*4", "--out", "built.tecoengine"),
    "scripts": _script,
    "historical face": _historical,
    "Python": _python,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_accept_the_same_names(command: str, model: Path) -> None:
    for name in NAMES:
        COMMANDS[command](model, name)
        shutil.rmtree("dump", ignore_errors=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_raise_the_same_errors(command: str, model: Path) -> None:
    with pytest.raises(PassError) as caught:
        COMMANDS[command](model, "gone_pass.py")
    zoo = (
        "default_pass.py, resnet/resnet_blocked_pass.py, resnet/resnet_pass.py, resnet/resnet_pass_5d.py, "
        "resnet/resnet_pass_syncop.py, shufflenet/shufflenet_pass.py, yolov5m/yolov5_pass.py"
    )
    assert str(caught.value) == f"pass file gone_pass.py does not exist; the zoo's own are in {ZOO}: {zoo}"


def test_lookup_order_of_pass_files(tmp_path: Path, model: Path) -> None:
    assert find_pass("default_pass") == ZOO / "default_pass.py"
    assert find_pass("none") is None
    assert find_pass(None) is None
    other = tmp_path / "other"
    other.mkdir()
    (other / "default_pass.py").write_text("")
    assert find_pass("default_pass", other) == other / "default_pass.py"
    (tmp_path / "default_pass.py").write_text("")
    assert find_pass("default_pass", other) == Path("default_pass.py")
    assert find_pass(other / "default_pass.py") == other / "default_pass.py"
    assert PassOptions.load(Path("own_pass")).skip_ops == {"Relu"}


@pytest.mark.parametrize("name", ["", ".", "..", "other", "own_pass.txt"])
def test_missing_file_raises(name: str, tmp_path: Path, model: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(PassError, match="does not exist; the zoo's own are in"):
        find_pass(name)
