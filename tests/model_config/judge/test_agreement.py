"""Tests of comparing raw outputs of a model with random weights with those of its baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from model_config.cases.case import Command
from model_config.judge.agreement import judge_outputs, words
from model_config.results import Accuracy, StepResult, Verdict


def step(folder: Path, name: str, answers: dict[str, Sequence[object]] | None, reason: str = "") -> StepResult:
    """Return a step whose samples have one output of these values, or one with another JSON format."""
    path = folder / f"{name}.json"
    found = [
        {"name": sample, "answer": {"outputs": [{"shape": [len(values)], "values": list(values)}]}}
        for sample, values in (answers or {}).items()
    ]
    path.write_text(json.dumps({"answers": found} if answers is not None else {"mine": 1}))
    log = folder / "log"
    return StepResult("net", name, (), not reason, 1.0, 0, reason, log, log, result=path)


TRUE = {"a.png": [1.0, -2.0, 4.0], "b.png": [0.0, 8.0]}


def judged(folder: Path, ours: dict[str, Sequence[object]] | None, dtype: str = "float16") -> Accuracy | str:
    return judge_outputs(step(folder, "outputs", ours), step(folder, "outputs-baseline", TRUE), dtype, "onnx float32")


def test_outputs_within_the_precision_agree(tmp_path: Path) -> None:
    found = judged(tmp_path, {"a.png": [1.01, -2.0, 4.0], "b.png": [0.0, 8.2]})
    assert isinstance(found, Accuracy)
    assert (found.verdict, found.metric, found.samples) == (Verdict.PASS, 1.0, 2)
    assert found.reason == (
        "random weights: raw outputs of 2 of 2 samples agree with onnx float32; the largest relative error is 2.5e-02 "
        "(b.png; max|a - b| / max|b|), tolerance 0.05"
    )
    strict = judged(tmp_path, {"a.png": [1.01, -2.0, 4.0], "b.png": [0.0, 8.2]}, "float32")
    assert isinstance(strict, Accuracy)
    assert (strict.verdict, strict.metric) == (Verdict.FAIL, 0.0)


@pytest.mark.parametrize(
    ("ours", "good", "says"),
    [
        ({"a.png": [1.0, -2.0, 4.0], "b.png": [0.0, 9.0]}, 1, "1 of 2 samples agree"),
        ({"a.png": [1.0, -2.0, 4.0], "b.png": [0.0, None]}, 1, "error is inf (b.png;"),
        ({"a.png": [1.0, -2.0, 4.0], "b.png": [0.0, 8.0, 0.0]}, 1, "error is inf (b.png;"),
        ({"a.png": [1.0, -2.0, 4.0]}, 1, "1 of 1 samples agree with onnx float32, 1 were run once only"),
    ],
    ids=["far", "nan", "shape", "lost"],
)
def test_one_sample_that_differs_fails(ours: dict[str, Sequence[object]], good: int, says: str, tmp_path: Path) -> None:
    found = judged(tmp_path, ours)
    assert isinstance(found, Accuracy)
    assert found.verdict is Verdict.FAIL
    assert found.metric * found.samples == good
    assert says in found.reason


def test_a_script_without_raw_outputs_is_not_judged(tmp_path: Path) -> None:
    assert judged(tmp_path, None) == (
        "no raw outputs to compare: the script writes none for --skip_postprocess with --json"
    )


def test_a_run_that_failed_fails(tmp_path: Path) -> None:
    broken = step(tmp_path, "outputs-baseline", TRUE, "exit code 1: no")
    found = judge_outputs(step(tmp_path, "outputs", TRUE), broken, "float16", "onnx float32")
    assert isinstance(found, Accuracy)
    assert (found.verdict, found.reason) == (Verdict.FAIL, "outputs-baseline could not be run: exit code 1: no")


def test_arguments_of_both_runs() -> None:
    multi = Command("multi", "example_multi_batch.py", {"ckpt": "a_float16_dyn.onnx", "target": "sdaa"})
    assert words(multi) == ("--skip_postprocess", "true")
    assert words(multi, "float32", {"det": "d.onnx", "rec": "r.onnx"}) == (
        *("--target", "onnx", "--dtype", "float32", "--ckpt", "det=d.onnx", "rec=r.onnx"),
        *("--skip_postprocess", "true"),
    )
