"""The process beside a rank: what it ends, what it leaves alone, and when it ends itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import ROOT

from utils.pipeline.launch.rank_watcher import Watcher, is_stopped

if not Path("/proc/self/stat").is_file():
    pytest.skip("needs /proc", allow_module_level=True)

RANK = """
import os, sys, time
from utils.pipeline.launch import mpi
mpi._watch(1, 2)
if "come" in sys.argv:
    mpi._notify_watcher(f"{os.getpid()}:1")
if "close" in sys.argv:
    os.close(mpi._watcher.pop())
print(os.getpid(), flush=True)
time.sleep(600)
"""
LAUNCHER = """
import subprocess
with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
    print(process.pid, flush=True)
"""
JOB = "PMIX_NAMESPACE=the tests' own"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts Python with some code, and waits for its first line."""
    with ExitStack() as stack:

        def started(code: str, *words: str, **env: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            stack.callback(process.send_signal, signal.SIGCONT)
            return process

        yield started


def first_line(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))


def wait_until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def watchers(pid: int) -> list[str]:
    """Return the command lines of the watchers of a process."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(word.endswith("rank_watcher.py") for word in words) and str(pid) in words:
            found.append(" ".join(words))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("come",)])
def test_the_watched_rank_is_ended_if_stopped(words: tuple[str, ...], start: Start) -> None:
    rank = start(RANK, *words, _TECO_STOPPED_LOOKS="1", _TECO_START_LOOKS="600")
    stop(first_line(rank))
    assert rank.wait(120) == -signal.SIGKILL
    assert rank.stderr is not None
    assert rank.stderr.read().startswith(f"rank 1: process {rank.pid} is stopped")
    wait_until(lambda: not watchers(rank.pid))


@pytest.mark.slow
def test_a_rank_is_ended_if_others_are_missing(start: Start) -> None:
    rank = start(RANK, _TECO_START_LOOKS="1")
    assert rank.wait(120) == -signal.SIGKILL
    assert rank.stderr is not None
    assert "not all 2 ranks" in rank.stderr.read()


def test_the_watcher_ends_with_its_rank_or_pipe(start: Start) -> None:
    one, two = start(RANK, "come"), start(RANK, "close")
    assert first_line(one) == one.pid
    wait_until(lambda: len(watchers(one.pid)) == 1)
    assert first_line(two) == two.pid
    wait_until(lambda: not watchers(two.pid))
    one.kill()
    one.wait(120)
    wait_until(lambda: not watchers(one.pid))


def test_the_watcher_is_not_a_rank(start: Start) -> None:
    rank = start(RANK, OMPI_COMM_WORLD_RANK="1", PMIX_NAMESPACE="job")
    first_line(rank)
    children = Path(f"/proc/{rank.pid}/task/{rank.pid}/children")
    if not children.is_file():
        pytest.skip("this kernel does not list children")
    wait_until(lambda: bool(watchers(rank.pid)))
    (child,) = children.read_text().split()
    environment = Path(f"/proc/{child}/environ").read_bytes()
    assert b"OMPI_" not in environment
    assert b"PMIX_" not in environment
    wait_until(lambda: os.getpgid(int(child)) == int(child))  # a stop of the rank's whole group does not reach it


def test_processes_are_kept_while_the_launcher_is_stopped(start: Start) -> None:
    launcher = start(LAUNCHER)
    pid = first_line(launcher)
    watcher = Watcher(pid, 0, 2, 3, 600, "")
    stop(launcher.pid)
    stop(pid)
    for _ in range(5):
        watcher.look()
    assert is_stopped(pid)
    launcher.send_signal(signal.SIGCONT)
    wait_until(lambda: not is_stopped(launcher.pid))
    for _ in range(2):
        watcher.look()
    assert is_stopped(pid)
    watcher.look()
    assert launcher.wait(120) == 0  # its child is gone


def test_a_continued_rank_is_not_ended(start: Start) -> None:
    launcher = start(LAUNCHER)
    pid = first_line(launcher)
    watcher = Watcher(pid, 0, 2, 2, 600, "")
    for _ in range(3):
        stop(pid)
        watcher.look()
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_stopped(pid))
        watcher.look()
    assert launcher.poll() is None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_rank_in_a_debugger_is_not_ended(start: Start, tmp_path: Path) -> None:
    """A traced process that is stopped by a signal is held by its tracer."""
    launcher = start(LAUNCHER)
    pid = first_line(launcher)
    command = ["strace", "-o", str(tmp_path / "log"), "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        if b"attached" not in tracer.stderr.readline():
            pytest.skip("this user may not trace")
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(pid))
        watcher = Watcher(pid, 0, 2, 1, 600, "")
        for _ in range(3):
            watcher.look()
        assert is_stopped(pid)
        os.kill(pid, signal.SIGKILL)


def test_another_rank_of_the_job_is_ended_later_and_once(start: Start) -> None:
    """Found by its environment until all have come, by its number afterwards."""
    code = "import time\nprint(0, flush=True)\ntime.sleep(600)"
    other = start(code, PMIX_NAMESPACE="the tests' own", OMPI_COMM_WORLD_RANK="3")
    foreign = start(code, PMIX_NAMESPACE="another one", OMPI_COMM_WORLD_RANK="3")
    for process in (other, foreign):
        first_line(process)
        stop(process.pid)
    watcher = Watcher(os.getpid(), 0, 4, 1, 600, JOB)
    watcher.look()
    watcher.look()
    assert is_stopped(other.pid)
    watcher.look()
    assert other.wait(120) == -signal.SIGKILL
    watcher.take(f"{os.getpid()}:0 {foreign.pid}:1\n")
    for _ in range(6):  # later than a rank would that waits for its part
        watcher.look()
    assert foreign.wait(120) == -signal.SIGKILL
    watcher.look()


def test_all_ranks_meet_again(start: Start) -> None:
    launcher = start(LAUNCHER)
    pid = first_line(launcher)
    watcher = Watcher(pid, 0, 2, 1, 2, "")
    watcher.take(f"{pid}:0")
    for _ in range(4):
        watcher.look()
    watcher.take("")
    watcher.look()
    assert launcher.poll() is None
    watcher.look()
    assert launcher.wait(120) == 0
