"""``save_engine.py``: all ways of opening the model load the saved engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support import DIGITS, ROOT, RunPython, SaveOnnx

from engine import ConfigError, EngineSpec, ModelError, PassError
from engine.sdaa import SdaaEngine, read_saved
from tecoexec.save_engine import execute

SCRIPT = ROOT / "tecoexec" / "save_engine.py"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(DIGITS / "digits_dyn.onnx", tmp_path / "digits.onnx"))


def test_as_a_script_from_any_folder(model: Path, tmp_path: Path, run_python: RunPython) -> None:
    out = tmp_path / "d.tecoengine"
    flags = ["--onnx", model, "--input_shapes", "16*3*32*32", "--fp16", "--out", out]
    done = run_python(SCRIPT, *flags, "--pass_path", "resnet/resnet_pass.py", cwd=tmp_path, path=())
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{out}: 0.")
    assert first.endswith(" s (host)")
    assert second == "one SPA takes input 4x3x32x32; float16, passes: resnet_pass.py"
    assert read_saved(out).shapes == {"input": (4, 3, 32, 32)}
    x = np.ones((16, 3, 32, 32), np.float16)
    with SdaaEngine(EngineSpec(out)) as loaded, SdaaEngine(EngineSpec(model, 16, ((4, 3, 32, 32),))) as built:
        assert (loaded.loaded, built.loaded) == (True, False)
        assert loaded.dtype == "float16"
        assert loaded(x).shape == built(x).shape  # type: ignore[union-attr]


def test_default_output_is_next_to_the_model(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    assert execute(["--onnx", str(model), "--input_shapes=input:12x3x32x32"]) == 0
    assert "input 4x3x32x32; float32, passes: none" in capsys.readouterr().out
    with SdaaEngine(EngineSpec(model, 12, ((4, 3, 32, 32),), dtype="float32")) as engine:
        assert engine.loaded


def test_shapes_are_optional_for_a_fixed_model(save_onnx: SaveOnnx, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_onnx("agraph (float[2,3] x, float k) => (float[2,3] y) { y = Mul(x, k) }")
    execute(["--onnx", str(path)])
    assert "one SPA takes x 2x3, k scalar; float32" in capsys.readouterr().out


def test_errors_are_one_line(model: Path, tmp_path: Path, run_python: RunPython) -> None:
    done = run_python(SCRIPT, "--onnx", model, "--input_shapes", "__import__('os')", cwd=tmp_path, path=())
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "is not a shape" in done.stderr


@pytest.mark.parametrize(
    ("flags", "error", "text"),
    [
        (["--out", "m.engine"], ConfigError, "must end in .tecoengine"),
        (["--out", "none/m.tecoengine"], ConfigError, "folder none does not exist"),
        (["--input_shapes", "16*3*32"], ConfigError, "3 dimensions, not 4"),
        (["--input_shapes", "0*3*32*32"], ConfigError, "dimension of 0"),
        (["--pass_path", "gone.py"], PassError, "gone.py does not exist"),
        (["--onnx", "gone.onnx"], ModelError, "gone.onnx does not exist"),
    ],
)
def test_invalid_arguments(flags: list[str], error: type[Exception], text: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(error) as caught:
        execute(["--onnx", str(model), "--input_shapes", "4*3*32*32", *flags])
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.tecoengine"))
