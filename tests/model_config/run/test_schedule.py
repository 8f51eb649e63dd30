"""Tests of parallel cases: shares of the cores, order, errors of one case, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine import ConfigError, usable_cores
from model_config.cases.config import ROOT, Case
from model_config.results import CaseResult
from model_config.run.schedule import Slot, run_all, slots


def cases(*names: str) -> list[Case]:
    return [Case(name, f"example/x/{name}", (), ROOT / "model_config/model.yaml", 7) for name in names]


def result(case: Case) -> CaseResult:
    return CaseResult(case.name, case.run_dir)


def test_slots_have_disjoint_cores() -> None:
    found = slots(1000)
    taken = [core for slot in found for core in slot.cores]
    assert len(found) == usable_cores()
    assert len(taken) == len(set(taken))
    assert set(taken) <= os.sched_getaffinity(0)
    assert len(slots(1)[0].cores) == usable_cores()
    assert len(slots(0)) == 1


@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_cases_run_in_parallel_in_order_of_completion() -> None:
    both = threading.Barrier(2, timeout=10)
    last = threading.Event()

    def work(case: Case, slot: Slot) -> CaseResult:
        if case.name != "third":
            both.wait()
        if case.name == "first":
            assert last.wait(10)
        if case.name == "third":
            last.set()
        return result(case)

    found = [one.case for one in run_all(cases("first", "second", "third"), work, parallel=2)]
    assert set(found) == {"first", "second", "third"}
    assert found[0] == "second"


def test_one_at_a_time_keeps_the_order_and_a_slot_is_never_shared() -> None:
    busy: set[tuple[int, ...]] = set()

    def work(case: Case, slot: Slot) -> CaseResult:
        assert slot.cores not in busy
        busy.add(slot.cores)
        time.sleep(0.005)
        busy.remove(slot.cores)
        return result(case)

    names = [f"case{number}" for number in range(20)]
    assert [one.case for one in run_all(cases(*names), work, parallel=1)] == names
    assert sorted(one.case for one in run_all(cases(*names), work)) == sorted(names)
    assert list(run_all([], work)) == []


def test_error_of_one_case_becomes_its_finding() -> None:
    def work(case: Case, slot: Slot) -> CaseResult:
        if case.name == "bad":
            raise ConfigError("example/x/bad cannot be copied: disk full; make room")
        return result(case)

    found = {one.case: one for one in run_all(cases("bad", "good"), work)}
    (finding,) = found["bad"].findings
    assert str(finding) == "model_config/model.yaml:7: case: example/x/bad cannot be copied: disk full; make room"
    assert found["good"].findings == ()


def test_unexpected_exception_is_raised_at_the_end() -> None:
    def work(case: Case, slot: Slot) -> CaseResult:
        if case.name == "bug":
            raise ZeroDivisionError("in the check")
        return result(case)

    results = run_all(cases("one", "bug", "two", "three"), work)
    assert sorted(next(results).case for _ in range(3)) == ["one", "three", "two"]
    with pytest.raises(ZeroDivisionError, match="in the check"):
        next(results)


def test_closing_the_generator_stops_running_cases() -> None:
    started: list[str] = []

    def work(case: Case, slot: Slot) -> CaseResult:
        started.append(case.name)
        if case.name != "quick":
            assert slot.stop.wait(10)
        return result(case)

    with closing(run_all(cases("quick", "slow", "never"), work, parallel=2 if usable_cores() > 1 else 1)) as results:
        assert next(results).case == "quick"
    assert len(started) <= 3


INTERRUPTED = """
import sys, time
from pathlib import Path
from model_config.cases.config import Case, Command
from model_config.results import CaseResult
from model_config.run.runner import Limits, run_step
from model_config.run.schedule import run_all

folder = Path(sys.argv[1])
steps = (Command("export", "quick.py", {}), Command("multi", "slow.py", {}))

def work(case, slot):
    done = []
    try:
        for step in case.steps:
            done.append(run_step(case, step, folder, folder / "logs" / case.name, Limits(60), slot=slot))
    except KeyboardInterrupt:
        print("partial", case.name, len(done), flush=True)
    return CaseResult(case.name, case.run_dir, steps=tuple(done))

cases = [Case("quick", ".", steps[:1], folder), Case("slow", ".", steps, folder), Case("third", ".", steps, folder)]
try:
    for result in run_all(cases, work, parallel=int(sys.argv[2])):
        print("result", result.case, len(result.steps), flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2])
def test_ctrl_c_ends_steps_and_keeps_results(tmp_path: Path, parallel: int) -> None:
    (tmp_path / "quick.py").write_text("")
    (tmp_path / "slow.py").write_text("import os, time\nprint(os.getpid())\ntime.sleep(60)\n")
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(parallel)]
    logs = [tmp_path / "logs" / name / "multi.stdout" for name in ("slow", "third")[:parallel]]
    start = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as check:
        while check.poll() is None and not all(log.is_file() and log.read_text() for log in logs[: usable_cores()]):
            assert time.monotonic() - start < 30
            time.sleep(0.02)
        check.send_signal(signal.SIGINT)
        out, _ = check.communicate(timeout=20)
    lines = out.splitlines()
    assert lines[0] == "result quick 1"
    assert {"partial slow 1", "result slow 1"} <= set(lines)
    assert lines[-1] == "interrupted"
    pids = [int(log.read_text()) for log in logs if log.is_file()]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
