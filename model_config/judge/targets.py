"""The metric of a case on the targets other than that of its valid step, for the scorecard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_config.cases.case import Case, Command
from model_config.judge.accuracy import BASELINE_NAME, RunStep, baseline_of, read_result
from model_config.results import StepResult

TARGETS = (("onnx", "float32"), ("cpu", "float32"))
"""Targets whose metric is in a scorecard in addition to the case's own, with their dtypes."""


@dataclass(frozen=True, slots=True)
class OnTarget:
    """Metric of the valid step on one target."""

    target: str
    dtype: str
    metric_name: str
    metric: float
    samples: int


def on_other_targets(
    case: Case, step: Command, folder: Path, ran: Sequence[StepResult], run: RunStep
) -> tuple[list[OnTarget], list[str]]:
    """Evaluate a case on the other targets, with the files of the baseline and the data of the valid step.

    Args:
        folder: the copy of the model's folder with the exported files.
        ran: steps already run; the baseline is not repeated.
        run: runs the other steps.

    Returns:
        The results, and a note on every target whose step failed or wrote no result.
    """
    found, notes = [], []
    for target, dtype in TARGETS:
        if target == step.params["target"]:
            continue
        known = [result for result in ran if result.step == BASELINE_NAME] if target == "onnx" else []
        words = Command("valid", step.run_file, {"ckpt": baseline_of(case, step, folder)}).arguments
        extra = ("--target", target, "--dtype", dtype, *words)
        result = known[0] if known else run(step, f"valid-{target}", extra)
        said = read_result(result.result) if result.passed else {}
        if said:
            found.append(OnTarget(target, dtype, said["metric_name"], said["metric"], said["samples"]))
        else:
            notes.append(f"{target} is not in the scorecard: {result.reason or 'the step wrote no metric'}")
    return found, notes
