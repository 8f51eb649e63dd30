"""Benchmarks of the server: that they run and what they store, not their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_requests_with_and_without_batching(tmp_path: Path) -> None:
    done = run("serving.py", "--quick", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "found.json").read_text())
    names = {f"{protocol} {name}" for protocol in ("http", "grpc") for name in ("single", "batched", "64 rows")}
    assert set(data["figures"]) == names
    assert all(0 < found["p50"] <= found["p99"] for found in data["figures"].values())
    assert data["bare_rows_per_s"] > 0


def test_a_prediction_by_the_planner(tmp_path: Path) -> None:
    done = run("planning/serving_prediction.py", "--quick", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "found.json").read_text())
    assert data["requests"] > 10
    assert data["predicted_p99_s"] > data["simulated_call_s"] > 0
    assert data["measured_p99_s"] > data["simulated_call_s"]


def test_a_soak() -> None:
    done = run("tools/serving_soak.py", "--minutes", "0.2")
    assert done.returncode in (0, 1), done.stderr
    assert "growth" in done.stdout
