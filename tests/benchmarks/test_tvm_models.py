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
    done = run("--only", CARTPOLE, "no such architecture", "--json", result)
    assert done.returncode == 1  # its worker died
    data = json.loads(result.read_text(encoding="utf-8"))
    outcome = data["models"][CARTPOLE]
    assert data["schema_version"] == 1
    assert 0 <= outcome["error"] < 1e-4
    assert outcome["compile_seconds"] > 0
    assert data["models"]["no such architecture"]["verdict"]["reason"]
    done = run("--only", CARTPOLE, "--json", result)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(result.read_text(encoding="utf-8"))["models"][CARTPOLE] == outcome  # not run again


@pytest.mark.slow
@pytest.mark.long
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


def test_rows_of_the_page_without_a_new_result_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from sweep.tvm_models import BEGIN, END, in_order, listed, table

    models = {
        "net": {"error": 2e-7, "compile_seconds": 1.5, "reason": ""},
        "example/b.onnx": {"error": None, "compile_seconds": None, "reason": "TVM cannot import: Loop"},
        "other": {"error": 0.5, "compile_seconds": 1.0, "reason": "differs by 5.0e-01"},
        "dead": {"error": None, "compile_seconds": None, "reason": "signal 11", "verdict": {"reason": "signal 11"}},
    }
    found = listed(f"text\n{BEGIN}\n{table(models)}\n{END}\n")
    assert found == models
    new = in_order({**found, "example/a.onnx": models["net"]})
    assert list(new) == ["example/a.onnx", "example/b.onnx", "net", "other", "dead"]
    assert table(new).splitlines()[0].startswith("5 models: 2 are equal, 1 are refused, 2 differ.")


@pytest.mark.slow
@pytest.mark.long
def test_folders_that_are_finished_are_kept(tmp_path: Path) -> None:
    result, name = tmp_path / "folders.json", "reinforcement/ppo_cartpole"

    def folders(*words: object) -> subprocess.CompletedProcess[str]:
        return run(*words, "--json", result, script="../tvm_folders.py")

    done = folders("--only", name)
    assert done.returncode == 0, done.stderr
    row = json.loads(result.read_text(encoding="utf-8"))["folders"][name]
    metrics = [float(metric) for metric, _ in row["runs"]]
    assert row["problem"] == ""
    assert len(metrics) == 3
    assert all(seconds > 0 for _, seconds in row["runs"])
    assert f"| {name} | {row['runs'][0][0]} |" in done.stdout
    assert done.stderr.count(name) == 3
    again = folders("--only", name)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)  # not run again
    unknown = folders("--only", "no/folder")
    assert unknown.returncode == 2
    assert unknown.stderr.count("\n") == 1


def test_a_folder_whose_metric_differs_or_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from tvm_folders import is_good, table

    runs = [["0.9", 1.0], ["0.9", 20.0], ["0.9", 2.0]]
    rows = {
        "a": {"runs": runs, "problem": ""},
        "b": {"runs": [*runs[:1], ["0.8", 20.0], ["0.8", 2.0]], "problem": ""},
        "c": {"runs": runs[:1], "problem": "error: c.onnx: TVM cannot import: Loop; use --target onnx"},
        "d": {"runs": runs[:1], "problem": "--target tvm did not end within 1 s"},
    }
    assert [is_good(row) for row in rows.values()] == [True, False, True, False]
    lines = table(rows).splitlines()[2:]
    assert lines[0] == "| a | 0.9 | 0.9 | 1.0 | 20.0 | 2.0 |  |"
    assert lines[1].endswith("| differs |")
    assert lines[2] == f"| c | 0.9 |  | 1.0 |  |  | {rows['c']['problem']} |"
