"""The accuracy part of a check: the metric of a case's target beside the baseline's and the source framework's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.base import DataError, TecoInferError
from model_config.case import Case, Paths, Step
from model_config.results import Accuracy, StepResult, Verdict

RunStep = Callable[[Step, str, Sequence[str]], StepResult]
"""Runs a step under another name, with further arguments that win over its own."""

BASELINE = ("--target", "onnx", "--dtype", "float32")
"""What makes a valid step the baseline's."""

BASELINE_NAME = "baseline"
"""Name of the baseline's step."""

RANDOM = "random weights: the metric means nothing, so accuracy is not judged"


def judge_case(
    case: Case, step: Step, valid: StepResult, folder: Path, run: RunStep
) -> tuple[list[Accuracy], list[StepResult], list[str]]:
    """Judge the metric of a valid step that passed.

    Args:
        case, step: the case and its valid step.
        valid: what the step did.
        folder: the model's folder in which it ran, with the files its export made.
        run: runs the baseline, and the source framework's evaluation.

    Returns:
        The comparisons, the steps that were run for them, and notes.
    """
    if any(_weights(folder / ckpt) == "random" for ckpt in step.ckpts.values()):
        return [], [], [RANDOM]
    judged: list[Accuracy] = []
    ran: list[StepResult] = []
    baseline = _baseline(case, step, folder)
    if not _is_baseline(step, baseline):
        words = Step("valid", step.run_file, {"ckpt": baseline}).arguments
        ran.append(run(step, BASELINE_NAME, (*BASELINE, *words)))
        judged.append(_against_run(valid, ran[0], "onnx float32", case.accuracy.tolerance))
    rule = case.accuracy
    if rule.run_reference is not None:
        ran.append(run(rule.run_reference, "reference", ()))
        judged.append(_against_run(valid, ran[-1], _source(case), rule.reference_tolerance))
    elif rule.reference is not None:
        judged.append(_against_reference(case, valid))
    notes = [] if judged else ["the valid step is the baseline itself, and model.yaml has no accuracy.reference"]
    return judged, ran, notes


def _weights(ckpt: Path) -> str:
    """Return what the export noted about the weights; empty where it noted nothing."""
    from engine.onnx_graph import load_model, metadata

    try:
        stored = json.loads(metadata(load_model(ckpt)).get("provenance", "{}"))
    except (TecoInferError, ValueError):  # another engine's file; the step has shown that it runs
        return ""
    return str(stored.get("weights", "")) if isinstance(stored, dict) else ""


def _baseline(case: Case, step: Step, folder: Path) -> Paths:
    """Return the ONNX files of the baseline: those the case names, the float32 twins of the step's, or the same."""
    if case.accuracy.baseline_ckpt:
        return case.accuracy.baseline_ckpt
    twins = {name: _twin(ckpt, folder) for name, ckpt in step.ckpts.items()}
    return twins if isinstance(step.params["ckpt"], Mapping) else next(iter(twins.values()))


def _twin(ckpt: str, folder: Path) -> str:
    """Return the float32 file that goes with a float16 one, where there is one, else the same."""
    twin = ckpt.replace("_float16", "")
    return twin if (folder / twin).is_file() else ckpt


def _is_baseline(step: Step, ckpt: Paths) -> bool:
    params = step.params
    return (params["target"], params["dtype"], params["ckpt"]) == ("onnx", "float32", ckpt)


def _source(case: Case) -> str:
    return case.accuracy.reference_source or "the source framework"


def _against_run(valid: StepResult, other: StepResult, against: str, tolerance: float) -> Accuracy:
    """Compare with another run over the same data, by the records of both where they wrote them."""
    from model_config.gate import judge, read_pairs
    from utils.pipeline.records import records_path

    metric = math.nan if valid.eval_metric is None else valid.eval_metric
    reference = math.nan if other.eval_metric is None else other.eval_metric
    drift = (metric - reference) / reference if reference else math.nan

    def unpaired(verdict: Verdict, reason: str) -> Accuracy:
        return Accuracy(verdict, reason, against, "eval_metric", metric, reference, drift, tolerance)

    if not other.passed:
        return unpaired(Verdict.FAIL, f"{against} could not be run: {other.reason}")
    ours, theirs = valid.result, other.result
    if ours is not None and theirs is not None and all(records_path(path).is_file() for path in (ours, theirs)):
        try:
            pairs = read_pairs(records_path(ours), records_path(theirs))
            metrics = [read_result(path)["metric"] for path in (ours, theirs)]
            return judge(pairs, *metrics, tolerance=tolerance, against=against)
        except DataError as error:
            return unpaired(Verdict.FAIL, f"cannot be compared with {against}: {error}")
        except KeyError as error:
            lack = f"a --json file has no {error}; write it as utils.pipeline.cli does"
            return unpaired(Verdict.FAIL, f"cannot be compared with {against}: {lack}")
    # By the printed metrics alone: a difference fails, and none says little about other samples.
    what = f"eval_metric {metric:g} against {reference:g} of {against}"
    if not abs(drift) <= tolerance:
        return unpaired(Verdict.FAIL, f"{what}: {drift:+.3%}, beyond the tolerance of {tolerance:.3%}")
    lack = "no per-sample records to judge by; let the script take --json, as utils.pipeline.cli does"
    return unpaired(Verdict.INCONCLUSIVE, f"{what}, but {lack}")


def _against_reference(case: Case, valid: StepResult) -> Accuracy:
    from model_config.gate import judge_reference

    rule, result = case.accuracy, read_result(valid.result)
    metric = result.get("metric", valid.eval_metric)
    return judge_reference(
        math.nan if metric is None else float(metric),
        float(rule.reference or 0.0),
        result.get("samples", 0),
        metric_name=result.get("metric_name", "eval_metric"),
        tolerance=rule.reference_tolerance,
        against=_source(case),
    )


def read_result(path: Path | None) -> dict[str, Any]:
    """Return metric and samples that a step wrote down; nothing where it wrote nothing that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        return {
            "metric_name": str(found["metric_name"]),
            "metric": float(found["metric"]),
            "samples": int(found["samples"]),
        }
    except (OSError, ValueError, KeyError, TypeError):  # a script with a JSON of its own
        return {}
