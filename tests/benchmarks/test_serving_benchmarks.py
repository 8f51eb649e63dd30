"""Benchmarks of the server: that they run and what they store, not their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "mlperf_loadgen"):
    pytest.importorskip(_package)


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_requests_with_and_without_batching(tmp_path: Path) -> None:
    done = run("serving.py", "--quick", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "found.json").read_text())
    names = {f"{protocol} {name}" for protocol in ("http", "grpc") for name in ("single", "batched", "64 rows")}
    empty = {"grpc empty", "grpc empty, 64 rows"}
    assert set(data["figures"]) == names | empty | {"engine, 64 rows"}
    assert all(0 < data["figures"][name]["p50"] <= data["figures"][name]["p99"] for name in names | empty)
    assert all(found["rate"] > 0 and found["cpu"] > 0 for found in data["figures"].values())
    assert 0 < data["share_of_bare"] < data["most_batching"]


def test_other_servers_that_are_missing_are_left_out(tmp_path: Path) -> None:
    """An interpreter without packages is a line, and so is a file that is none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    done = run("serving.py", "--quick", "--mlserver", str(bare), "--ray", str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert f"MLServer: left out: {bare} cannot import mlserver: ModuleNotFoundError" in done.stdout
    assert f"Ray Serve: left out: {tmp_path / 'none'} cannot be started: No such file" in done.stdout


def test_a_prediction_by_the_planner(tmp_path: Path) -> None:
    done = run("planning/serving_prediction.py", "--quick", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "found.json").read_text())
    (row,) = data["rows"]
    calls = [data["simulated_call_s"][str(rows)] for rows in (1, 4)]
    assert row["queries"] > 10
    assert min(row["predicted_p99_s"], row["measured_p99_s"]) > calls[1] >= calls[0] > 0


def test_a_soak() -> None:
    done = run("tools/serving_soak.py", "--minutes", "0.2", "--rate", "20")
    assert done.returncode in (0, 1), done.stderr
    assert "growth" in done.stdout


def test_the_own_part_of_the_server(tmp_path: Path) -> None:
    done = run("tools/serving_inside.py", "--quick", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    kinds = json.loads((tmp_path / "found.json").read_text())["kinds"]
    assert [(kind["rows"], kind["in_flight"]) for kind in kinds] == [(1, 16), (64, 2)]
    assert all(kind["cpu"] > 0 and kind["once"] > 0 for kind in kinds)
