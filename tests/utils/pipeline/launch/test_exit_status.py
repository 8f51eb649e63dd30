"""Processes that end by a signal, or stop: said in words, and noticed by those who wait."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import EngineError
from utils.pipeline.launch import mpi, ray_launcher
from utils.pipeline.launch.exit_status import Stopped, crashed, how_ended, is_stopped


@pytest.fixture
def stopped() -> Iterator[int]:
    """Return a process that is stopped."""
    if not Path("/proc/self/stat").is_file():
        pytest.skip("needs /proc")
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: S607
        process.send_signal(signal.SIGSTOP)
        while not is_stopped(process.pid):
            time.sleep(0.001)
        yield process.pid
        process.kill()


def at_once(pid: int) -> Stopped:
    found = Stopped(lambda: (pid,), looks=1)
    found._next = 0.0
    return found


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0"),
        (255, "exit code 255"),
        (-9, "SIGKILL"),
        (-8, "SIGFPE, a crash in native code"),
        (-11, "SIGSEGV, a crash in native code"),
        (-40, "signal 40"),
    ],
)
def test_descriptions_of_exit_codes(code: int, said: str) -> None:
    assert how_ended(code) == said
    assert crashed(code) is ("crash" in said)


def test_a_process_is_stopped_after_consecutive_checks(stopped: int) -> None:
    looks = Stopped(lambda: (stopped,), looks=3)
    assert looks() is None  # too early for any
    seen = []
    for _ in range(3):
        looks._next = 0.0
        seen.append(looks())
    assert seen == [None, None, stopped]
    assert not is_stopped(2**22 + 1)


def test_waiting_for_a_stopped_rank_is_an_error(stopped: int) -> None:
    with pytest.raises(EngineError, match=rf"rank 3 .*{stopped}\) is stopped"):
        mpi._wait(lambda: False, at_once(stopped), {stopped: 3})


def test_a_stopped_ray_worker_is_killed(stopped: int) -> None:
    lines: list[str] = []
    run: Any = SimpleNamespace(stopped=at_once(stopped), reported=time.monotonic())
    ray_launcher._look(run, lines.append)
    assert lines == [f"worker process {stopped} is stopped; ending it"]
    while Path(f"/proc/{stopped}/stat").read_text().rsplit(") ")[1][0] != "Z":
        time.sleep(0.001)


def test_a_lost_ray_cluster_gives_one_line() -> None:
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    def gone(*_: Any, **__: Any) -> None:
        raise RayError("the raylet\nis gone")

    ray = SimpleNamespace(wait=gone, exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError))
    actor = SimpleNamespace(start=SimpleNamespace(remote=lambda *_: "call"))
    run = ray_launcher._Run(ray, lambda: actor, "m:f", (), 1, {})
    with pytest.raises(EngineError, match=r"0 of 1 .*raylet"):
        ray_launcher._finish(run, print)
