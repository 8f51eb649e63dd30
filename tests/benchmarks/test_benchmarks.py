"""Every benchmark runs and writes what it promises. No figure is asserted: machines differ, and may be busy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
HEAD = {"schema_version", "benchmark", "quick", "measured", "environment"}


def run(name: str, tmp_path: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """Run a benchmark in its quick mode; return its JSON and what it printed."""
    result = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(result), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    data = json.loads(result.read_text(encoding="utf-8"))
    assert set(data) > HEAD
    assert (data["schema_version"], data["benchmark"], data["quick"]) == (1, name, True)
    return data, done.stdout


def test_engine_overhead(tmp_path: Path) -> None:
    data, out = run("engine_overhead", tmp_path)
    assert data["bare_us"] > 0
    assert len(data["engine_blocks"]) == len(data["bare_blocks"]) == 3
    assert data["target_us"] == 10
    assert "overhead:" in out


@pytest.mark.slow
def test_speed_collects_the_figures_of_its_parts(tmp_path: Path) -> None:
    work = ["--work", str(tmp_path / "work")]
    data, _ = run("speed", tmp_path, *work, "--only", "engine_overhead", "spa_split", "check_time")
    assert [row["target"] for row in data["figures"]] == [10, 1.03, 1.15]
    assert all(row["met"] is (row["value"] <= row["target"]) and row["measured"] for row in data["figures"])
    (tmp_path / "work/engine_overhead.json").write_text('{"overhead_us": 12.5, "target_us": 10}', encoding="utf-8")
    kept, _ = run("speed", tmp_path, *work, "--only", "engine_overhead", "--kept")
    (row,) = kept["figures"]
    assert (row["value"], row["met"], kept["missing"]) == (12.5, False, [])


@pytest.mark.slow
def test_opening(tmp_path: Path) -> None:
    data, _ = run("opening", tmp_path)
    rows = [(row["model"], row["target"], row["dtype"]) for row in data["rows"]]
    assert rows == [("dense", "sdaa", "float16"), ("dense", "sdaa", "float32"), ("dense", "onnx", "float32")]
    assert all(row["ratio"] > 0 for row in data["rows"])


@pytest.mark.slow
def test_cold_start_and_its_imports(tmp_path: Path) -> None:
    data, out = run("cold_start", tmp_path, "--imports")
    assert data["ratio"] > 0
    assert len(data["ours_runs"]) == len(data["bare_runs"]) == 2
    assert "the limit" in out
    names = {entry["module"] for entry in data["imports"]}
    assert "engine.base" in names
    assert not names & {"torch", "onnx", "yaml", "tqdm", "concurrent.futures"}


def test_bare_script_and_ours_give_the_same_answer(tmp_path: Path) -> None:
    digits = ROOT / "example/classification/digits"
    image = digits / "data/val/7/0081.png"
    bare = [str(BENCHMARKS / "parts" / "bare_single.py"), str(digits / "digits_dyn.onnx"), str(image)]
    printed = subprocess.run([sys.executable, *bare], capture_output=True, text=True, check=True).stdout
    result = tmp_path / "answer.json"
    ours = [str(digits / "example_single_batch.py"), "--target", "onnx", "--data_path", str(image)]
    subprocess.run([sys.executable, *ours, "--json", str(result)], capture_output=True, check=True)
    (answer,) = json.loads(result.read_text(encoding="utf-8"))["answers"][0]["answer"]
    assert printed.strip().endswith(f"label {answer['label']}")
    assert float(printed.split("score ")[1].split(",")[0]) == pytest.approx(answer["score"], abs=1e-5)


@pytest.mark.slow
def test_preprocessing(tmp_path: Path) -> None:
    """The exact way has the bits of Pillow and NumPy, with the C extension and without it."""
    data, out = run("preprocess", tmp_path)
    rows = {(row["case"], row["contestant"]): row for row in data["rows"]}
    exact = [row for (_, name), row in rows.items() if name.startswith("exact")]
    assert len(exact) == (6 if data["image_kernels"].startswith("C extension") else 3)
    assert not any(row["largest_difference_levels"] for row in exact)
    assert all(row["seconds"] >= row["least_seconds"] > 0 for row in rows.values())
    assert data["image_kernels"] in out


def check_rows(data: dict[str, Any], model: str) -> None:
    rows = [row for row in data["rows"] if row["model"] == model]
    assert [row["target"] for row in rows] == ["onnx", "sdaa"]
    assert [row["simulated"] for row in rows] == [False, True]
    for row in rows:
        assert row["metrics_equal"]
        assert min(row["ours_sps"], row["plain_sps"], row["limit_sps"], row["speedup"]) > 0


def test_end_to_end_without_resnet18(tmp_path: Path) -> None:
    data, out = run("end_to_end", tmp_path, "--resnet18", str(tmp_path / "missing.onnx"))
    check_rows(data, "digits")
    assert data["skipped"] == ["resnet18"]
    assert "limit/s" in out


@pytest.mark.long
@pytest.mark.slow
def test_end_to_end_with_an_exported_resnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small ResNet in the place of resnet18, whose export is that of the example, which has tests of its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from parts.networks import resnet

    onnx.save(resnet((1, 1, 1, 1), 16), tmp_path / "resnet18_dyn.onnx")
    data, _ = run("end_to_end", tmp_path, "--work", str(tmp_path))
    check_rows(data, "digits")
    check_rows(data, "resnet18")
    assert not data["skipped"]
    assert len(list(tmp_path.rglob("*.jpg"))) == 16


@pytest.mark.slow
def test_int8_recipes(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    data, out = run("int8", tmp_path, "--models", "digits")
    found = data["models"]["digits"]
    assert set(found) == {"full", "weights", "smooth"}
    for recipe in found.values():
        assert set(recipe["runtimes"]) == {"ONNX Runtime", "OpenVINO"}
        for one in recipe["runtimes"].values():
            assert one["cosine"] > data["bound"] == 0.99
            assert one["times_float32"] > 0
            assert one["times_baseline"] > 0
    assert "digits CNN: calibrated on 45 samples, 64 others" in out
