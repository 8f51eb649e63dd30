"""Tests that reports show no metric for a model with random weights."""

from __future__ import annotations

import io

from model_config.judge.accuracy import RANDOM
from model_config.reports.terminal import deciding, print_table
from model_config.results import Accuracy, CaseResult, CheckResult, Verdict


def test_random_weights_replace_metric() -> None:
    agreed = Accuracy(
        Verdict.PASS, "all agree", "onnx float32", "samples whose raw outputs agree", 1.0, 1.0, 0.0, 0.05, 2
    )
    case = CaseResult("net", "example/x/net", "sdaa", accuracy=(agreed,), notes=(RANDOM,))
    assert deciding(case) == ("random weights", "–")
    assert case.parts["accuracy"] is Verdict.PASS
    out = io.StringIO()
    print_table(CheckResult((case,)), out)
    row = next(line for line in out.getvalue().splitlines() if line.startswith("net "))
    assert "random weights" in row
    assert "PASS" in row
