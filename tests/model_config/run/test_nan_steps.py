"""Tests that a step with NaN in its samples fails for this reason, whatever its exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import ROOT

from model_config.cases.config import load_cases
from model_config.judge.accuracy import judge_case
from model_config.results import CaseResult, StepResult, Verdict
from model_config.run.closing import said_of_nan
from model_config.run.runner import Limits, run_step
from model_config.run.workplace import workplace

DIGITS = next(case for case in load_cases([ROOT / "model_config" / "model.yaml"], ROOT) if "digits" in case.run_dir)
VALID = next(step for step in DIGITS.steps if step.name == "valid")


def said(tmp_path: Path, content: object) -> str:
    (tmp_path / "result.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return said_of_nan(tmp_path / "result.json")


def test_nan_message_of_result(tmp_path: Path) -> None:
    assert said(tmp_path, {"samples": 9, "nan_outputs": ["a", "b"]}).startswith(
        "2 of 9 samples have NaN in the model's"
    )
    assert said(tmp_path, {"answers": [{}, {}], "nan_outputs": ["a"]}).startswith(
        "1 of 2 samples have NaN in the model"
    )
    assert said(tmp_path, {"samples": 9, "nan_inputs": ["a"]}).startswith("1 of 9 samples have NaN in their input (a)")
    for none in ({"samples": 9, "nan_inputs": [], "nan_outputs": []}, {}, [], "no JSON", {"nan_outputs": 7}):
        assert said(tmp_path, none) == ""
    assert said_of_nan(None) == said_of_nan(tmp_path / "gone.json") == ""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("broken", ["target", pytest.param("baseline", marks=pytest.mark.slow)])
def test_case_with_nan_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    case = replace(DIGITS, accuracy=replace(DIGITS.accuracy, reference=None, run_reference=None))
    faults = "; ".join(f"nan:spa={spa},step=1" for spa in range(4))
    with workplace(case, tmp_path, ROOT) as tree:

        def run(step: object, name: str, extra: object) -> StepResult:
            # the baseline also runs on a card here, so that the fault can be injected
            words = [*extra, "--target", "sdaa"] if name == "baseline" else [*extra]  # type: ignore[misc]
            if (name == "baseline") is (broken == "baseline"):
                monkeypatch.setenv("TECO_SIM_FAULTS", faults)
            else:
                monkeypatch.delenv("TECO_SIM_FAULTS", raising=False)
            return run_step(case, step, tree, tmp_path / "logs", Limits(), extra=words, name=name)  # type: ignore[arg-type]

        valid = run(VALID, "valid", ("--target", "sdaa"))
        judged = judge_case(case, VALID, valid, tree / case.run_dir, run)[0] if valid.passed else []
    result = CaseResult(case.name, case.run_dir, steps=(valid,), accuracy=tuple(judged))
    assert result.verdict is Verdict.FAIL
    assert "samples have NaN in the model's output (" in " ".join(result.reasons)
    assert valid.passed is (broken == "baseline")
