"""The benchmark of all models on target tvm writes what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import ROOT

pytestmark = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")

CARTPOLE = "example/reinforcement/ppo_cartpole/ppo_cartpole_dyn.onnx"


def run(*words: object, script: str = "tvm_models.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/sweep" / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_a_committed_model_and_an_unknown_one(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = run("--only", CARTPOLE, "--json", result)
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(result.read_text(encoding="utf-8"))
    outcome = data["models"][CARTPOLE]
    assert data["schema_version"] == 1
    assert 0 <= outcome["error"] < 1e-4
    assert outcome["compile_seconds"] > 0
    done = run("--only", CARTPOLE, "no such architecture", "--json", result)
    assert done.returncode == 1  # its worker died
    data = json.loads(result.read_text(encoding="utf-8"))
    assert data["models"][CARTPOLE] == outcome  # not run again
    assert data["models"]["no such architecture"]["verdict"]["reason"]


@pytest.mark.slow
def test_a_row_of_the_table_of_speeds() -> None:
    name = "recommendation/deepfm_synthetic/deepfm_synthetic_dyn.onnx"
    done = run("--only", name, "--rounds", 1, script="tvm_speed.py")
    assert (done.returncode, done.stderr) == (0, "")
    row = done.stdout.splitlines()[-1].split("|")[1:-1]
    assert row[0].strip() == "deepfm_synthetic_dyn"
    assert all(float(cell) >= 0 for cell in row[1:])


def test_the_table_names_what_differs_and_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from sweep.tvm_models import table

    models = {
        "a": {"error": 2e-7, "compile_seconds": 1.5, "reason": ""},
        "b": {"error": None, "compile_seconds": None, "reason": "TVM cannot import: Loop"},
        "c": {"error": 0.5, "compile_seconds": 1.0, "reason": "differs by 5.0e-01"},
    }
    lines = table(models).splitlines()
    assert lines[0].startswith("3 models: 1 are equal, 1 are refused, 1 differ.")
    assert lines[-3:] == [
        "| a | 1.5 | 2.0e-07 |  |",
        "| b |  | | TVM cannot import: Loop |",
        "| c | 1.0 | 5.0e-01 | differs by 5.0e-01 |",
    ]
