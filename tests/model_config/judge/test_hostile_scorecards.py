"""Tests of malformed scorecards and JSON results: rejected or ignored without an unexpected exception."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine import ConfigError
from model_config.judge import accuracy, agreement, scorecard

KEY = {"case": "one"}


@pytest.mark.parametrize(
    "text",
    [
        "figures: [5]",
        "figures: [{case: one, host_s: fast}]",
        "figures: [{case: one, host_s: [1]}]",
        "figures: [{1: 2}]",
        "{1: 2}",
        "a: &a [*a]",
        "figures: [" * 3000,
    ],
)
def test_a_scorecard_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / scorecard.PERF).write_text(text)
    with pytest.raises(ConfigError, match=r"perf\.yaml: .*--update"):
        scorecard.stored_speed(tmp_path, KEY)


def test_a_scorecard_with_keys_of_several_types_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / scorecard.PERF).write_text("figures: [{case: one, host_s: 0.5, run_s: null, of: {1: 2, a: 3}}]")
    found = scorecard.read(tmp_path, scorecard.PERF)
    assert scorecard._digest(found) == ""
    assert scorecard.stored_speed(tmp_path, KEY) == {"host_s": 0.5}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "5", json.dumps({"metric": 10**400}), json.dumps({"answers": [5]}), '{"samples": Infinity}']
)
def test_the_json_of_a_script_may_contain_anything(text: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    assert (accuracy.read_result(path), agreement.raw_outputs(path)) == ({}, {})
    assert accuracy.direction(path)


def test_pipe_is_not_read_as_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert accuracy.read_result(tmp_path / "pipe") == {}
