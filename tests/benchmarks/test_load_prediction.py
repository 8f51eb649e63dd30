"""benchmarks/planning/load_prediction.py: what it computes and stores, not how well it predicts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support import ROOT

from tecoexec.load.latency import Queries
from tecoexec.load.sut import Sample, Served
from tecoexec.plan.simulate import Policy, simulate

pytest.importorskip("mlperf_loadgen")
SCRIPT = ROOT / "benchmarks" / "planning" / "load_prediction.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load_prediction", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["load_prediction"] = module
    spec.loader.exec_module(module)
    return module


def test_service_times_of_a_simulated_server_are_found_again(benchmark: ModuleType) -> None:
    """A test with known service times gives these back, and their replay the same latencies."""
    due = np.cumsum(np.random.default_rng(2).exponential(1.0, 200))
    drawn = np.random.default_rng(3).uniform(0.2, 1.4, 200)
    place, free, first, served = 0, 0.0, 0, []
    while first < len(due):
        start = max(free, due[first])
        last = min(first + 3, int(np.searchsorted(due, start, "right")))
        free = start + drawn[place] * (last - first)
        samples = tuple(Sample(i, 0, i, float(due[i])) for i in range(first, last))
        served.append(Served(samples, start, free, free, free))
        place, first = place + 1, last
    queries = Queries(due, due, np.empty(0), np.empty(0))
    sizes, services = benchmark.served_times(served[::-1], queries)
    assert sizes.tolist() == [len(batch.samples) for batch in served]
    np.testing.assert_allclose(services, drawn[: len(served)] * sizes)
    test = benchmark.Test(1, 0.0, len(due), sizes, services)
    latency = simulate(due, benchmark.in_order([test], 0), 1, Policy(3)).latency
    ends = np.concatenate([[batch.answered] * len(batch.samples) for batch in served])
    np.testing.assert_allclose(latency, ends - due)


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--paced",)])
def test_quick_run_of_the_prediction(how: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--models", "digit_crnn", "--loads", "0.3", *how]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "r.json")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "r.json").read_text())
    (row,) = data["rows"]
    assert row["queries"] > 0
    assert row["error"] == pytest.approx(row["predicted_p99_ms"] / row["loadgen_p99_ms"] - 1)  # one round
    assert "| 30% |" in done.stdout
