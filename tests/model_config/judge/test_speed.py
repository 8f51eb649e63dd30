"""Tests of comparing times with stored ones."""

from __future__ import annotations

from typing import Any

import pytest

from engine.host import processor_name
from model_config.judge.speed import judge_speed
from model_config.results import Verdict

STORED = {"host_s": 0.01, "kernel_s": 0.02, "simulated_s": 0.001, "processor": processor_name()}


def judged(now: dict[str, float], stored: dict[str, Any], **options: bool) -> tuple[list[Verdict], int]:
    """Return the verdicts of simulated and host time, and the number of repeated measurements."""
    tries = []

    def again() -> dict[str, float]:
        tries.append(now)
        return now

    found = judge_speed({"kernel_s": 0.02, "run_s": 2.0, "simulated_s": 0.001} | now, stored, again, **options)
    return [one.verdict for one in found], len(tries)


@pytest.mark.parametrize(("host_s", "verdict", "tries"), [(0.01, Verdict.PASS, 0), (0.03, Verdict.FAIL, 2)])
def test_a_host_time_is_judged_on_the_stored_processor(host_s: float, verdict: Verdict, tries: int) -> None:
    now = {"host_s": host_s, "kernel_s": 0.02}
    assert judged(now, STORED) == ([Verdict.PASS, verdict], tries)


@pytest.mark.parametrize("processor", [{"processor": "another processor"}, {}], ids=["another", "none"])
def test_a_host_time_of_another_processor_is_not_judged(processor: dict[str, str]) -> None:
    stored = {name: value for name, value in STORED.items() if name != "processor"} | processor
    assert judged({"host_s": 0.03}, stored) == ([Verdict.PASS, Verdict.NONE], 0)


def test_host_times_are_not_judged_on_request() -> None:
    assert judged({"host_s": 0.03, "simulated_s": 0.002}, STORED, host=False) == ([Verdict.FAIL, Verdict.NONE], 0)


def test_the_kernel_time_divides_the_host_time() -> None:
    verdicts, _ = judged({"host_s": 0.03, "kernel_s": 0.06}, STORED)
    assert verdicts == [Verdict.PASS, Verdict.PASS]
