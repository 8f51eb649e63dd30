"""An environment that does not come back is told of, once for each call, and only then."""

from __future__ import annotations

import time

import pytest

from tecoinfer_modelzoo.text import typed_reason
from utils import stuck
from utils.tasks.policy_rollout.rollout import Stuck


def test_a_call_that_does_not_come_back(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "PATIENCE", 0.04)
    said, end = "", time.monotonic() + 20
    with Stuck("Odd\n-v0") as watch:
        watch.doing = "step 17", 1003, time.perf_counter() - 1
        while not said and time.monotonic() < end:
            time.sleep(0.01)
            said = capsys.readouterr().err
        time.sleep(0.03)  # it is not said again
    assert said.startswith("the environment Odd -v0 has been in step 17 of seed 1003 for 0.04 s")
    assert "Ctrl-C" in said
    assert capsys.readouterr().err == ""


def test_what_comes_back_in_time_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with Stuck("Odd-v0") as watch:
        watch.doing = "reset", 1, time.perf_counter()
        watch.doing = None
    assert capsys.readouterr().err == ""


def test_an_error_that_cannot_say_what_it_is() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert typed_reason(SilentError()) == "SilentError: SilentError, whose text raises RuntimeError"
