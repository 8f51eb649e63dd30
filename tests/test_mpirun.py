"""Real ``mpirun`` of the example script, with killed ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from utils.pipeline.launch import in_order

CROWD = ROOT / "tests" / "crowd.py"
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason='mpi4py is not installed (".[mpi]")'),
]


def start(count: int, *args: object, **env: str) -> subprocess.Popen[str]:
    """Start so many ranks, more than there are cores too, in a separate process group."""
    settings = {**os.environ, **ROOT_MAY, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **env}
    command = ["mpirun", "--oversubscribe", "-n", str(count), sys.executable, *map(str, args)]
    return subprocess.Popen(
        command, env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def mpirun(count: int, *args: object, **env: str) -> tuple[int, str, str]:
    process = start(count, *args, **env)
    stdout, stderr = process.communicate(timeout=180)
    return process.returncode, stdout, stderr


def running(marker: Path) -> list[int]:
    """Return the processes that have the folder on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if str(marker).encode() in words:
            found.append(int(process.name))
    return found


def wait_for(folder: Path, *names: str) -> None:
    deadline = time.monotonic() + 120
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < deadline, f"{names} did not come"
        time.sleep(0.02)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with one process."""
    folder = tmp_path_factory.mktemp("alone")
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(CROWD), str(folder)], env=settings, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_metric_and_samples_are_those_of_one_process(count: int, alone: Path, tmp_path: Path) -> None:
    code, stdout, stderr = mpirun(count, CROWD, tmp_path)
    assert (code, stderr) == (0, "")
    merged, line, summary = stdout.splitlines()
    assert merged == f"merged from {count} processes on 1 machine"
    assert line.startswith("eval_metric ")
    assert summary.startswith("summary: avg_sps: ")
    result, single = read(tmp_path, "result.json"), read(alone, "result.json")
    assert (result["metric"], result["samples"]) == (single["metric"], single["samples"]) == (single["metric"], 100)
    assert (result["processes"], result["recomputed"]) == (count, 0)
    records = [read(tmp_path, f"records-{rank}.json") for rank in range(count)]
    assert in_order(records) == read(alone, "records-0.json")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_ranks_share_the_cores(tmp_path: Path) -> None:
    assert mpirun(2, CROWD, tmp_path, "--samples", 4, OMPI_MCA_hwloc_base_binding_policy="none")[0] == 0
    cores = len(os.sched_getaffinity(0))
    assert [read(tmp_path, f"process-{rank}.json")["cores"] for rank in range(2)] == [max(1, cores // 2)] * 2


@pytest.mark.long
@pytest.mark.slow
def test_more_ranks_than_samples(tmp_path: Path) -> None:
    code, stdout, stderr = mpirun(3, CROWD, tmp_path, "--samples", 2)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("merged from 3 processes on 1 machine\neval_metric 1.0\n")


@pytest.mark.slow
def test_error_in_one_rank_ends_all(tmp_path: Path) -> None:
    began = time.monotonic()
    code, stdout, stderr = mpirun(3, CROWD, tmp_path, "--wrong", "error", "--rank", 2, "--slow", 0.2, "--samples", 360)
    assert (code, stdout) == (2, "")
    own = [line for line in stderr.splitlines() if line.startswith(("rank", "error", "Traceback"))]
    assert own == ["rank 2: error: rank 1 met what the zoo refuses"]
    assert time.monotonic() - began < 15
    assert not running(tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_bug_in_one_rank_is_one_line(tmp_path: Path) -> None:
    code, stdout, stderr = mpirun(2, CROWD, tmp_path, "--wrong", "bug")
    assert (code, stdout) == (2, "")
    assert "rank 1: error: ZeroDivisionError: a bug in the script (" in stderr
    assert "Traceback" not in stderr
    code, stdout, stderr = mpirun(2, CROWD, tmp_path, "--wrong", "bug", TECO_TRACEBACK="1")
    assert (code, stdout) == (2, "")
    assert "rank 1: Traceback (most recent call last):" in stderr


@pytest.mark.long
@pytest.mark.slow
def test_common_errors_are_reported_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from engine import ConfigError\nfrom utils.pipeline.launch.mpi import gather\n"
        "def work():\n    raise ConfigError('there is no such model')\n"
        "gather(work, print)\n"
    )
    code, stdout, stderr = mpirun(4, script)
    assert (code, stdout) == (2, "")
    assert stderr.count("there is no such model") == 1
    assert "stopped by mpirun" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_rank_ends_all(rank: int, tmp_path: Path) -> None:
    process = start(2, CROWD, tmp_path, "--slow", 0.3, "--resume", "journal")
    wait_for(tmp_path, "rank-0-is-at-work", "rank-1-is-at-work")
    ranks = {
        int(Path(f"/proc/{pid}/environ").read_bytes().split(b"OMPI_COMM_WORLD_RANK=")[1].split(b"\0")[0]): pid
        for pid in running(tmp_path)
        if pid != process.pid
    }
    os.kill(ranks[rank], signal.SIGKILL)
    began = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode not in (0, None)
    assert "eval_metric" not in stdout
    assert f"rank {1 - rank}: stopped by mpirun" in stderr
    assert "run the same command again to go on from journal" in stderr
    assert not running(tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_ends_all(tmp_path: Path) -> None:
    process = start(2, CROWD, tmp_path, "--slow", 0.3)
    wait_for(tmp_path, "rank-0-is-at-work", "rank-1-is-at-work")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode not in (0, None)
    assert "eval_metric" not in stdout
    # mpirun kills after a second, so that on a busy machine one of the two may not come to say it.
    assert re.search(r"^rank [01]: stopped by mpirun, as it does on Ctrl-C", stderr, re.MULTILINE)
    assert "--resume DIR lets a run go on" in stderr
    assert not running(tmp_path)


@pytest.mark.slow
def test_no_mpi4py_under_mpirun(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('blocked')\n")
    code, stdout, stderr = mpirun(2, CROWD, tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (code, stdout) == (2, "")
    assert "needs mpi4py (blocked); run: pip install" in stderr
    assert not list(tmp_path.glob("rank-*"))


@pytest.mark.slow
def test_a_launcher_of_another_mpi_merges_nothing(tmp_path: Path) -> None:
    """Every process then is a world of its own."""
    settings = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    done = subprocess.run(
        [sys.executable, str(CROWD), str(tmp_path)],
        env={**os.environ, **ROOT_MAY, **settings, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rank 1 of 4: the metric covers this process's part only\n")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_the_example_script(count: int, digits: Path, tmp_path: Path) -> None:
    common = (digits / "example_valid.py", "--target", "onnx", "--json")
    code, stdout, stderr = mpirun(count, *common, tmp_path / "merged.json")
    assert (code, stderr) == (0, "")
    assert [line.split()[0] for line in stdout.splitlines()][-2:] == ["eval_metric", "summary:"]
    assert stdout.count("eval_metric") == stdout.count("target onnx") == 1
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, *map(str, common), str(tmp_path / "alone.json")], env=settings, check=True, capture_output=True
    )
    merged, single = read(tmp_path, "merged.json"), read(tmp_path, "alone.json")
    assert (merged["metric"], merged["samples"]) == (single["metric"], single["samples"])
    assert (merged["processes"], single["processes"]) == (count, 1)
