"""Outputs in the scorecard: what is stored of a step, how the deviation is computed, and what a check says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Array
from model_config.cases.case import Case, Command
from model_config.judge import scorecard
from model_config.judge.stored_outputs import (
    SAMPLES,
    TOLERANCES,
    VALUES,
    deviation,
    from_text,
    of_baseline,
    of_target,
    some_outputs,
    to_text,
)
from model_config.results import StepResult

STEP = {"ckpt": "m_float16_dyn.onnx", "batch_size": 4, "data_path": "data", "target": "sdaa", "dtype": "float16"}
STEPS = (Command("valid", "v.py", STEP), Command("multi", "m.py", STEP))
CASE = Case("one", "example/x/one", STEPS, Path("model.yaml"))


def result_of(folder: Path, samples: Sequence[Sequence[Sequence[float | None]]], name: str = "r") -> Path:
    """Write the JSON of a step: values by sample and output."""
    answers = [
        {"name": str(i), "answer": {"outputs": [{"shape": [len(one)], "values": list(one)} for one in outputs]}}
        for i, outputs in enumerate(samples)
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"answers": answers}))
    return path


def test_values_are_spaced_evenly_over_the_first_samples(tmp_path: Path) -> None:
    long = list(map(float, range(200)))
    found = some_outputs(result_of(tmp_path, [[long, [float(i)]] for i in range(6)]))
    assert [len(one) for one in found] == [SAMPLES * VALUES, SAMPLES]
    assert (found[0][0], found[0][VALUES - 1]) == (0, 199)
    assert found[1].tolist() == [0, 1, 2, 3]


def test_nothing_is_stored_of_other_results(tmp_path: Path) -> None:
    assert some_outputs(None) == []
    assert some_outputs(result_of(tmp_path, [])) == []
    assert some_outputs(result_of(tmp_path, [[[1.0]], [[1.0], [2.0]]])) == []


@pytest.mark.parametrize(
    ("ours", "stored", "wanted"),
    [
        ([[3.0, 4.0]], [[3.0, 4.0]], 0),
        ([[3.0, 4.5]], [[3.0, 4.0]], 0.1),
        ([[3.0, 4.0], [1.02]], [[3.0, 4.0], [1.0]], 0.02),
        ([[0.0, 0.0]], [[0.0, 0.0]], 0),
        ([[1e-9, 0.0]], [[0.0, 0.0]], math.inf),
        ([[math.nan, 1.0]], [[math.nan, 1.0]], 0),
        ([[1.0, 1.0]], [[math.nan, 1.0]], math.inf),
        ([[1.0, math.nan]], [[1.0, 1.0]], math.inf),
        ([[-math.inf, 1.0]], [[-math.inf, 1.0]], 0),
        ([[1.0]], [[1.0, 1.0]], math.inf),
        ([], [[1.0]], math.inf),
        ([], [], math.inf),
    ],
)
def test_deviation(ours: list[list[float]], stored: list[list[float]], wanted: float) -> None:
    found = deviation([np.array(one) for one in ours], [np.array(one) for one in stored])
    assert found == pytest.approx(wanted)


def test_the_text_has_seven_digits() -> None:
    values: list[Array] = [np.array([1 / 3, -2e-9, math.nan, math.inf]), np.array([])]
    found = from_text(to_text(values))
    assert [len(one) for one in found] == [4, 0]
    np.testing.assert_allclose(found[0], values[0], rtol=1e-6)


@pytest.mark.parametrize("lines", [None, 5, "1 2", [1.0], ["1 two"], {"a": "1"}])
def test_other_text_is_no_outputs(lines: Any) -> None:
    assert from_text(lines) == []


class Steps:
    """Steps of the case: values by name of the step; ``None``: it fails."""

    def __init__(self, folder: Path, **values: list[float] | None) -> None:
        self.folder, self.values, self.ran = folder, values, list[tuple[str, tuple[str, ...]]]()

    def __call__(self, step: Command, name: str, extra: Sequence[str]) -> StepResult:
        self.ran.append((name, tuple(extra)))
        values, log = self.values[name.replace("-", "_")], self.folder / "log"
        result = result_of(self.folder, [[values or []]], name)
        return StepResult("one", name, (), values is not None, 1.0, 0, "", log, log, result=result)


def test_the_baseline_is_stored_if_the_target_agrees(tmp_path: Path) -> None:
    run = Steps(tmp_path, outputs=[3.0, 4.001], outputs_baseline=[3.0, 4.0])
    found, note = of_baseline(CASE, tmp_path, run)
    assert ([one.tolist() for one in found], note) == ([[3.0, 4.0]], "")
    raw, baseline = ("--skip_postprocess", "true"), ("--target", "onnx", "--dtype", "float32")
    assert run.ran[0] == ("outputs", raw)
    assert run.ran[1][1][:4] == baseline
    assert run.ran[1][1][-2:] == raw


def test_the_baseline_is_not_stored_with_a_note_if_the_target_deviates(tmp_path: Path) -> None:
    found, note = of_baseline(CASE, tmp_path, Steps(tmp_path, outputs=[3.0, 4.1], outputs_baseline=[3.0, 4.0]))
    assert found == []
    assert "2.0e-02" in note


def test_nothing_is_stored_without_outputs(tmp_path: Path) -> None:
    assert of_baseline(CASE, tmp_path, Steps(tmp_path, outputs=None)) == ([], "")
    int8 = replace(CASE, steps=(Command("multi", "m.py", {**STEP, "dtype": "int8"}),))
    assert of_baseline(int8, tmp_path, Steps(tmp_path)) == ([], "")
    assert of_target(replace(CASE, steps=()), Steps(tmp_path)) == ([], "")


def measured(outputs: Sequence[Array], precision: str = "float16") -> scorecard.Measured:
    return scorecard.Measured(CASE, STEPS[0], "top1", 0.5, 10, (), {}, "0", None, outputs=outputs, precision=precision)


@pytest.mark.parametrize(
    ("scale", "precision", "fails"),
    [
        (1.02, "float16", True),
        (1.001, "float16", False),
        (1.001, "float32", True),
        (1.00001, "float32", False),
        (1.02, "bfloat16", True),
        (1.005, "bfloat16", False),
        (2.0, "int8", False),
        (2.0, "", False),
    ],
)
def test_a_check_compares_the_outputs(scale: float, precision: str, fails: bool, tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 50)
    scorecard.write(tmp_path, measured([values]), "abc1234", "2026-11-29")
    assert len(scorecard.stored_outputs(tmp_path, measured([]).key)) == 1
    found = scorecard.compare(tmp_path, measured([values * scale], precision), tmp_path)
    assert [one.rule for one in found] == (["scorecard"] if fails else [])
    assert all(f"{TOLERANCES[precision]:g}" in one.message for one in found)


def test_a_run_without_outputs_fails_where_some_are_stored(tmp_path: Path) -> None:
    scorecard.write(tmp_path, measured([np.ones(3)]), "abc1234", "2026-11-29")
    assert [one.rule for one in scorecard.compare(tmp_path, measured([]), tmp_path)] == ["scorecard"]


def test_outputs_of_another_case_are_not_compared(tmp_path: Path) -> None:
    scorecard.write(tmp_path, measured([np.ones(3)]), "abc1234", "2026-11-29")
    other = replace(measured([np.zeros(3)]), case=replace(CASE, name="two"))
    assert scorecard.compare(tmp_path, other, tmp_path) == []
    assert scorecard.stored_outputs(tmp_path, other.key) == []
