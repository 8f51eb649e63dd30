"""Whole commands on a card with a slow SPA: it is reported in every run, independent of the host's load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import DIGITS, RunPython

FAULTS = "slow:spa=3,step=0,factor=2; slow:spa=1,step=1,factor=4"
VALID = (DIGITS / "example_valid.py", "--target", "sdaa")
TECOEXEC = ("-m", "tecoexec", "--onnx", DIGITS / "digits_dyn.onnx", "--input_shapes", "8*3*32*32")


def reported(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "SLOW" in line]


@pytest.mark.parametrize(
    "words", [VALID, TECOEXEC, pytest.param((*TECOEXEC, "--simulateOnly"), marks=pytest.mark.slow)]
)
def test_in_the_warnings_and_in_the_json(words: tuple[object, ...], run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(*words, "--json", tmp_path / "result.json", TECO_SIM_FAULTS=FAULTS)
    assert done.returncode == 0
    found = reported(done.stderr)
    assert [line.split(":")[1].split()[:2] for line in found] == [["SPA", "3"], ["SPA", "1"]]
    device = json.loads((tmp_path / "result.json").read_text())["device"]
    assert [f"warning: {event}" for event in device["events"]] == found
    assert device["healthy"] == 4


@pytest.mark.parametrize("script", ["single", pytest.param("multi", marks=pytest.mark.slow)])
def test_displayed_results(script: str, run_python: RunPython) -> None:
    """A single sample is one shard: the slow SPA has none."""
    faults = "slow:spa=3,step=0,factor=2"
    done = run_python(DIGITS / f"example_{script}_batch.py", "--target", "sdaa", TECO_SIM_FAULTS=faults)
    assert done.returncode == 0
    assert len(reported(done.stderr)) == 1


@pytest.mark.slow
@pytest.mark.long
def test_faults_are_the_same_in_ten_runs(run_python: RunPython, tmp_path: Path) -> None:
    events = []
    for run in range(10):
        path = tmp_path / f"{run}.json"
        assert run_python(*VALID, "--json", path, TECO_SIM_FAULTS=FAULTS).returncode == 0
        events.append(json.loads(path.read_text())["device"]["events"])
    assert events == [events[0]] * 10
    assert len(events[0]) == 2
