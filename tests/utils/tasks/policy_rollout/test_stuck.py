"""An environment that does not come back is told of, once for each call, and only then."""

from __future__ import annotations

import time

import pytest

from tecoinfer_modelzoo.text import typed_reason
from utils import stuck
from utils.tasks.policy_rollout.rollout import CallWatchdog


def test_hanging_call_is_reported_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "PATIENCE", 0.04)
    said, end = "", time.monotonic() + 20
    with CallWatchdog("Odd\n-v0") as watch:
        watch.doing = "step 17", 1003, time.perf_counter() - 1
        while not said and time.monotonic() < end:
            time.sleep(0.01)
            said = capsys.readouterr().err
        time.sleep(0.03)  # it is not said again
    assert said.startswith("the environment Odd -v0 has been in step 17 of seed 1003 for 0.04 s")
    assert "Ctrl-C" in said
    assert capsys.readouterr().err == ""


def test_fast_calls_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with CallWatchdog("Odd-v0") as watch:
        watch.doing = "reset", 1, time.perf_counter()
        watch.doing = None
    assert capsys.readouterr().err == ""


def test_error_with_a_failing_str() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert typed_reason(SilentError()) == "SilentError: SilentError, whose text raises RuntimeError"
