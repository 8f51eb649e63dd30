"""Workers on a real local Ray cluster: killed actors, Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import ray_cluster, ray_settings
from support import ROOT

from utils.pipeline.launch import in_order

CROWD = ROOT / "tests" / "crowd.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed (".[ray]")')


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, str]]:
    with ray_settings() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(settings: dict[str, str]) -> Iterator[dict[str, str]]:
    with ray_cluster(settings) as joined:
        yield joined


def ray(env: dict[str, str], *args: object, workers: int = 3) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, args), "--launcher", "ray", "--num_workers", str(workers)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def processes_of(env: dict[str, str]) -> list[int]:
    """Return the processes that run with these settings."""
    marker = f"RAY_TMPDIR={env['RAY_TMPDIR']}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has just ended, or is somebody else's
            continue
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Path:
    """Return the folder of a run with one process."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, str(CROWD), str(folder)], env=settings, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_metric_and_samples_are_those_of_one_process(cluster: dict[str, str], alone: Path, tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert sorted(line.split(" samples in ")[0] for line in lines[:3]) == [
        *("part 1 of 3: 34", "part 2 of 3: 33", "part 3 of 3: 33")
    ]
    assert lines[3] == "merged from 3 processes on 1 machine"
    assert [line.split()[0] for line in lines[4:]] == ["eval_metric", "summary:"]
    result, single = read(tmp_path, "result.json"), read(alone, "result.json")
    assert {**result, "steps": 0} == {**single, "steps": 0, "processes": 3}
    records = [read(tmp_path, f"records-{rank}.json") for rank in range(3)]
    assert in_order(records) == read(alone, "records-0.json")
    assert len({read(tmp_path, f"process-{rank}.json")["pid"] for rank in range(3)}) == 3
    if hasattr(os, "sched_getaffinity"):
        cores = max(1, len(os.sched_getaffinity(0)) // 3)
        assert read(tmp_path, "process-0.json")["cores"] == cores


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_worker_is_replaced(cluster: dict[str, str], alone: Path, tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path, "--wrong", "once", "--samples", 100)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "died").exists()
    assert "part 2 of 3: its worker on " in done.stdout
    assert "merged from 3 processes on 1 machine, 1 lost and recomputed\n" in done.stdout
    result, single = read(tmp_path, "result.json"), read(alone, "result.json")
    assert {**result, "steps": 0} == {**single, "steps": 0, "processes": 3, "recomputed": 1}
    records = [read(tmp_path, f"records-{rank}.json") for rank in range(3)]
    assert in_order(records) == read(alone, "records-0.json")


@pytest.mark.long
@pytest.mark.slow
def test_repeatedly_killed_worker(cluster: dict[str, str], tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path, "--wrong", "always", workers=2)
    assert done.returncode == 2
    assert done.stdout.count("part 2 of 2: its worker on ") == 3
    assert "error: the worker of part 2 of 2 died 4 times (" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_zoo_error_is_reported_once(cluster: dict[str, str], tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path, "--wrong", "error", workers=2)
    assert (done.returncode, done.stderr) == (2, "error: rank 1 met what the zoo refuses\n")
    assert "computing it again" not in done.stdout


@pytest.mark.slow
def test_a_bug_in_the_script_shows_its_traceback(cluster: dict[str, str], tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path, "--wrong", "bug", workers=2)
    assert done.returncode == 1
    assert "misbehave" in done.stderr
    assert "ZeroDivisionError: a bug in the script" in done.stderr


@pytest.mark.slow
def test_more_workers_than_samples(cluster: dict[str, str], tmp_path: Path) -> None:
    done = ray(cluster, CROWD, tmp_path, "--samples", 2, workers=6)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 workers instead of 6: the data set has 2 samples\n")
    assert "merged from 2 processes" in done.stdout


def test_missing_cluster_raises(settings: dict[str, str], tmp_path: Path) -> None:
    done = ray({**settings, "RAY_ADDRESS": "nonsense"}, CROWD, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: Ray cannot use the cluster at RAY_ADDRESS=nonsense: ")


@pytest.mark.slow
def test_the_example_script(cluster: dict[str, str], digits: Path, tmp_path: Path) -> None:
    common = (digits / "example_valid.py", "--target", "onnx", "--json")
    done = ray(cluster, *common, tmp_path / "merged.json", workers=2)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()][-2:] == ["eval_metric", "summary:"]
    command = [sys.executable, *map(str, common), str(tmp_path / "alone.json")]
    subprocess.run(command, env=cluster, check=True, capture_output=True)
    merged, single = read(tmp_path, "merged.json"), read(tmp_path, "alone.json")
    assert (merged["metric"], merged["samples"]) == (single["metric"], single["samples"])
    assert (merged["processes"], merged["recomputed"], single["processes"]) == (2, 0, 1)


@pytest.mark.slow
def test_samples_at_risk_of_several_processes(cluster: dict[str, str], digits: Path, tmp_path: Path) -> None:
    script = (digits / "example_valid.py", "--target", "onnx", "--decode", "fused", "--json")
    done = ray(cluster, *script, tmp_path / "merged.json", workers=2)
    assert (done.returncode, done.stderr) == (0, "")
    command = [sys.executable, *map(str, script), str(tmp_path / "alone.json")]
    subprocess.run(command, env=cluster, check=True, capture_output=True)
    merged, single = (read(tmp_path, name)["comparison"]["at_risk"] for name in ("merged.json", "alone.json"))
    assert merged == single
    assert merged["deviation"] >= 0
    written = {f"{name}{ending}" for name in ("merged", "alone") for ending in (".json", ".samples.csv")}
    assert {file.name for file in tmp_path.iterdir() if "alone" in file.name or "merged" in file.name} == written


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("at_work", [True, False])
def test_ctrl_c_ends_a_started_cluster(at_work: bool, tmp_path: Path) -> None:
    """The terminal sends the interrupt to every process of the group."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": folder, "RAY_TMPDIR": folder}
        env.pop("RAY_ADDRESS", None)
        command = [sys.executable, CROWD, tmp_path, "--slow", "2", "--launcher", "ray", "--num_workers", "2"]
        process = subprocess.Popen(
            list(map(str, command)), env=env, text=True, stdout=-1, stderr=-1, start_new_session=True
        )
        deadline = time.monotonic() + 60
        sign = tmp_path / "rank-0-is-at-work" if at_work else Path(folder) / "ray"
        while not sign.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        stdout, _ = process.communicate(timeout=30)
        assert time.monotonic() - began < (10 if at_work else 30)  # Ray's start is not cut short
        assert process.returncode == 130
        assert stdout == ("interrupted with 0 of 2 parts done\n" if at_work else "")
        gone = time.monotonic() + 5
        while processes_of(env) and time.monotonic() < gone:
            time.sleep(0.1)
        assert not processes_of(env)
