"""The accuracy part of a check: the metric of a case's target beside the baseline's and the source framework's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.base import DataError, TecoInferError
from model_config.config import Case, Step
from model_config.results import Accuracy, StepResult, Verdict

RunAgain = Callable[[str, Sequence[str]], StepResult]
"""Runs the valid step again under another name, with further arguments that win over its own."""

BASELINE = ("--target", "onnx", "--dtype", "float32")
"""What makes a valid step the baseline's."""

BASELINE_NAME = "baseline"
"""Name of the baseline's step."""

RANDOM = "random weights: the metric means nothing, so accuracy is not judged"


def judge_case(
    case: Case, step: Step, valid: StepResult, folder: Path, again: RunAgain
) -> tuple[list[Accuracy], list[StepResult], list[str]]:
    """Judge the metric of a valid step that passed.

    Args:
        case, step: the case and its valid step.
        valid: what the step did.
        folder: the model's folder in which it ran, with the files its export made.
        again: runs the baseline.

    Returns:
        The comparisons, the steps that were run for them, and notes.
    """
    if _weights(folder / str(step.params["ckpt"])) == "random":
        return [], [], [RANDOM]
    judged: list[Accuracy] = []
    ran: list[StepResult] = []
    ckpt = _baseline_ckpt(case, step, folder)
    if not _is_baseline(step, ckpt):
        ran = [again(BASELINE_NAME, (*BASELINE, "--ckpt", ckpt))]
        judged.append(_against_baseline(case, valid, ran[0]))
    rule = case.accuracy
    if rule.reference is not None:
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


def _baseline_ckpt(case: Case, step: Step, folder: Path) -> str:
    """Return the ONNX file of the baseline: the one the case names, the float32 twin of the step's, or the same."""
    own = str(step.params["ckpt"])
    if case.accuracy.baseline_ckpt:
        return case.accuracy.baseline_ckpt
    twin = own.replace("_float16", "")
    return twin if (folder / twin).is_file() else own


def _is_baseline(step: Step, ckpt: str) -> bool:
    params = step.params
    return (params["target"], params["dtype"], params["ckpt"]) == ("onnx", "float32", ckpt)


def _against_baseline(case: Case, valid: StepResult, baseline: StepResult) -> Accuracy:
    from model_config.gate import judge, read_pairs
    from utils.pipeline.records import records_path

    if not baseline.passed or baseline.eval_metric is None or valid.eval_metric is None:
        return _unjudged(case, valid, math.nan, f"the baseline could not be run: {baseline.reason}", Verdict.FAIL)
    ours, theirs = valid.result, baseline.result
    if ours is None or theirs is None or not all(records_path(path).is_file() for path in (ours, theirs)):
        return _without_records(case, valid, baseline.eval_metric)
    try:
        pairs = read_pairs(records_path(ours), records_path(theirs))
        metrics = [float(_json(path)["metric"]) for path in (ours, theirs)]
        return judge(pairs, *metrics, tolerance=case.accuracy.tolerance)
    except (DataError, KeyError, TypeError, ValueError) as error:
        return _unjudged(case, valid, baseline.eval_metric, f"cannot be compared: {error}", Verdict.FAIL)


def _without_records(case: Case, valid: StepResult, reference: float) -> Accuracy:
    """Judge by the printed metrics alone: a difference fails, and none says little about other samples."""
    metric = math.nan if valid.eval_metric is None else valid.eval_metric
    drift = (metric - reference) / reference if reference else math.inf
    what = f"eval_metric {metric:g} against {reference:g} of onnx float32"
    if not abs(drift) <= case.accuracy.tolerance:
        reason = f"{what}: {drift:+.3%}, beyond the tolerance of {case.accuracy.tolerance:.3%}"
        return _unjudged(case, valid, reference, reason, Verdict.FAIL)
    reason = f"{what}, but no per-sample records to judge by; let the script take --json, as utils.pipeline.cli does"
    return _unjudged(case, valid, reference, reason, Verdict.INCONCLUSIVE)


def _unjudged(case: Case, valid: StepResult, reference: float, reason: str, verdict: Verdict) -> Accuracy:
    metric = math.nan if valid.eval_metric is None else valid.eval_metric
    drift = (metric - reference) / reference if reference else math.nan
    return Accuracy(verdict, reason, "onnx float32", "eval_metric", metric, reference, drift, case.accuracy.tolerance)


def _against_reference(case: Case, valid: StepResult) -> Accuracy:
    from model_config.gate import judge_reference

    rule, result = case.accuracy, _json(valid.result)
    metric = result.get("metric", valid.eval_metric)
    return judge_reference(
        math.nan if metric is None else float(metric),
        float(rule.reference or 0.0),
        int(result.get("samples", 0)),
        metric_name=str(result.get("metric_name", "eval_metric")),
        tolerance=rule.reference_tolerance,
        against=rule.reference_source or "the source framework",
    )


def _json(path: Path | None) -> dict[str, Any]:
    """Return what a step wrote down; nothing where it wrote nothing that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
