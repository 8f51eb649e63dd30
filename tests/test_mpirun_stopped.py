"""Ranks of a real ``mpirun`` that are stopped, killed or exit at any time: the job ends, with a reason."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_mpirun import CROWD, mpirun, pytestmark as pytestmark, running, start, wait_for

from utils.pipeline.launch.rank_watcher import is_stopped

QUICK = {"_TECO_STOPPED_LOOKS": "2"}
NOT_ALL = {"_TECO_START_LOOKS": "5"}
PLACES = ("start", "work", "worked", "gathered", "end")
SIZE = ("--samples", 16)


def said(stderr: str, word: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("rank") and word in line]


def rank_of(pid: int) -> int | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    found = environment.partition(b"OMPI_COMM_WORLD_RANK=")[2].partition(b"\0")[0]
    return int(found) if found else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "rank"),
    [
        pytest.param(place, rank, marks=() if (place, rank) == ("end", 0) else (pytest.mark.slow, pytest.mark.long))
        for place in PLACES
        for rank in (0, 1)
    ],
)
def test_a_stopped_rank_ends_the_job(place: str, rank: int, tmp_path: Path) -> None:
    code, stdout, stderr = mpirun(2, CROWD, tmp_path, "--at", place, "--rank", rank, *SIZE, **QUICK)
    assert code != 0
    assert len(said(stderr, "is stopped")) == 1
    assert said(stderr, "is stopped")[0].startswith(f"rank {rank}: process ")
    assert ("eval_metric" in stdout) is (place == "end" or (place == "gathered" and rank == 1))
    assert not running(tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_rank_waiting_for_a_part_ends_the_job(tmp_path: Path) -> None:
    """After the usual 20 seconds, with its own exit code."""
    code, stdout, stderr = mpirun(2, CROWD, tmp_path, "--at", "worked", "--rank", 1, *SIZE)
    assert (code, stdout) == (2, "")
    assert len([line for line in stderr.splitlines() if "is stopped" in line]) == 1
    assert not running(tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_in_mpi_init_is_stopped(rank: int, tmp_path: Path) -> None:
    process = start(2, CROWD, tmp_path, "--at", "start", "--rank", 1 - rank, "--signal", -1, **QUICK)
    wait_for(tmp_path, "at-start")
    pid, end = 0, time.monotonic() + 120
    while not in_mpi(pid):
        assert time.monotonic() < end
        pid = next((pid for pid in running(tmp_path) if rank_of(pid) == rank), 0)
        time.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode not in (0, None)
    assert [line.split(" is ")[0] for line in said(stderr, "is stopped")] == [f"rank {rank}: process {pid}"]
    assert "eval_metric" not in stdout
    assert not running(tmp_path)


def in_mpi(pid: int) -> bool:
    """Return whether a process has begun MPI: its library is loaded, and it has opened a socket to the launcher."""
    try:
        return "libmpi" in Path(f"/proc/{pid}/maps").read_text() and any(
            os.readlink(link).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", ["work", "gathered"])
def test_all_ranks_are_stopped(place: str, tmp_path: Path) -> None:
    """Each is ended by its own watcher, or by ``mpirun`` as the first one was."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom crowd import main\nsys.argv += ['--rank', os.environ[sys.argv.pop()]]\nmain()"
    )
    words = (script, tmp_path, "--at", place, *SIZE, "OMPI_COMM_WORLD_RANK")
    path = os.pathsep.join(map(str, (CROWD.parents[1], CROWD.parent)))
    code, _, stderr = mpirun(2, *words, PYTHONPATH=path, **QUICK)
    assert code != 0
    assert said(stderr, "is stopped")
    assert not running(tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_suspended_job_continues(tmp_path: Path) -> None:
    process = start(2, CROWD, tmp_path, "--at", "worked", "--rank", 1, *SIZE, **QUICK)
    wait_for(tmp_path, "at-worked")
    process.send_signal(signal.SIGSTOP)
    (pid,) = [pid for pid in running(tmp_path) if rank_of(pid) == 1]
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(6)  # three times what one rank would be given
    assert is_stopped(pid)
    os.kill(pid, signal.SIGCONT)
    process.send_signal(signal.SIGCONT)  # it forwards the signal, and says so
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0
    assert not said(stderr, "")
    assert "eval_metric" in stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", [0, int(signal.SIGKILL)])
def test_exited_rank_ends_the_job(place: str, how: int, tmp_path: Path) -> None:
    """Also one that exits silently, before or after MPI_Init."""
    words = ("--at", place, "--rank", 1, "--signal", how, *SIZE)
    code, _, stderr = mpirun(2, CROWD, tmp_path, *words, **NOT_ALL)
    assert code != 0
    # mpirun notices by itself a rank that leaves where another one has begun MPI, and else it is waited for.
    assert len(said(stderr, "not all 2 ranks")) <= (place == "start" and how == 0)
    assert not running(tmp_path)
