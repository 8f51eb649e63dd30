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
    sizes, starts, services = benchmark.served_times(served[::-1], queries)
    assert sizes.tolist() == [len(batch.samples) for batch in served]
    np.testing.assert_allclose(starts, [batch.started - due[0] for batch in served])
    np.testing.assert_allclose(services, drawn[: len(served)] * sizes)
    test = benchmark.Test(1, 0.0, len(due), sizes, starts, services)
    replay = benchmark.recorded(test, {1: 1.0, 2: 1.5, 3: 2.5})
    latency = simulate(due - due[0], replay, 1, Policy(3)).latency
    ends = np.concatenate([[batch.answered] * len(batch.samples) for batch in served])
    np.testing.assert_allclose(latency, ends - due)


@pytest.mark.parametrize("load", [0.3, 0.85])
def test_a_server_whose_speed_changes_is_predicted_without_a_bias(benchmark: ModuleType, load: float) -> None:
    found = [benchmark.synthetic_error(seed, load, (0.1, 0.03, 3.0), 10.0) for seed in range(25)]
    assert abs(float(np.median([error for error, _ in found]))) < benchmark.LIMIT


def test_a_recorded_speed_goes_on_between_batches_and_after_the_end(benchmark: ModuleType) -> None:
    # Cost 1: half speed until the middle of the gap at 3, then full speed until 5, and again from the begin.
    test = benchmark.Test(1, 0.0, 2, np.array([1, 1]), np.array([0.0, 4.0]), np.array([2.0, 1.0]))
    service = benchmark.recorded(test, {1: 1.0, 2: 2.5})
    assert service(1, 0.0) == pytest.approx(2.0)
    assert service(1, 2.0) == pytest.approx(1.5)
    assert service(1, 4.5) == pytest.approx(1.5)
    assert service(2, 3.0) == pytest.approx(3.0)
    assert service(1, 9.5) == pytest.approx(1.5)


def test_the_method_alone(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--synthetic", "--quick", "--loads", "0.6"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(benchmark.PHASES)


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
