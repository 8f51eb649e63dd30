"""Raw outputs of a model for some samples, compared with those of its baseline.

The metric of a model with random weights is meaningless, but its outputs must equal the file's float32 results within
the target's precision. Formula and tolerances are those of the export (:mod:`utils.export.agree`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array
from model_config.cases.case import Case, Command
from model_config.results import Accuracy, StepResult, Verdict
from model_config.written import STRANGE, read_json
from utils.export.agree import FORMULA, TOLERANCES, relative_error

RAW = ("--skip_postprocess", "true")
"""Arguments that make a script report raw outputs instead of predictions."""

OUTPUTS, BASELINE_OUTPUTS = "outputs", "outputs-baseline"
"""Names of the two steps."""

NAME = "samples whose raw outputs agree"

_NONE = "no raw outputs to compare: the script writes none for --skip_postprocess with --json"


def judge_outputs(target: StepResult, baseline: StepResult, dtype: str, against: str) -> Accuracy | str:
    """Compare the raw outputs of two runs, sample by sample.

    Args:
        target, baseline: the steps. dtype: the target's precision; int8 uses the tolerance of float16.
        against: description of the baseline.

    Returns:
        ``PASS`` if all outputs agree within the tolerance, else ``FAIL``; or why they cannot be compared.
    """
    for step in (target, baseline):
        if not step.passed:
            return _judged(Verdict.FAIL, f"{step.step} could not be run: {step.reason}", against, 0, 0, math.nan)
    ours, theirs = raw_outputs(target.result), raw_outputs(baseline.result)
    names = [name for name in ours if name in theirs]
    if not names:
        return _NONE
    tolerance = TOLERANCES.get(dtype, TOLERANCES["float16"])
    errors = {name: relative_error(ours[name], theirs[name]) for name in names}
    good = sum(error <= tolerance for error in errors.values())
    worst = max(errors, key=lambda name: errors[name])
    verdict = Verdict.PASS if good == len(names) and len(ours) == len(theirs) == len(names) else Verdict.FAIL
    lost = f", {max(len(ours), len(theirs)) - len(names)} were run once only" if len(ours) != len(theirs) else ""
    reason = f"random weights: raw outputs of {good} of {len(names)} samples agree with {against}{lost}; the largest "
    reason += f"relative error is {errors[worst]:.1e} ({worst}; {FORMULA}), tolerance {tolerance:g}"
    return _judged(verdict, reason, against, good, len(names), tolerance)


def _judged(verdict: Verdict, reason: str, against: str, good: int, count: int, tolerance: float) -> Accuracy:
    share = good / count if count else 0.0
    return Accuracy(verdict, reason, against, NAME, share, 1.0, share - 1.0, tolerance, count, units=count)


def step_of(case: Case) -> Command | None:
    """Return the step whose samples are compared: multi, else single."""
    return next((one for name in ("multi", "single") for one in case.steps if one.name == name), None)


def words(step: Command, dtype: str = "", ckpt: Any = None) -> tuple[str, ...]:
    """Return the additional arguments of a step for its raw outputs; for the baseline with ``dtype``."""
    baseline = ("--target", "onnx", "--dtype", dtype) if dtype else ()
    return (*baseline, *(Command(step.name, step.run_file, {"ckpt": ckpt}).arguments if ckpt else ()), *RAW)


def raw_outputs(result: Path | None) -> dict[str, list[Array]]:
    """Return the values of every sample's outputs in a result, followed by their shapes; empty if there are none."""
    try:
        found = read_json(result) if result is not None else {}
        return {str(one["name"]): _arrays(one["answer"]["outputs"]) for one in found.get("answers", [])}
    except STRANGE:  # a JSON file of another format
        return {}


def _arrays(outputs: Sequence[Mapping[str, Any]]) -> list[Array]:
    """Return the values of one sample, an array per output, followed by the shapes, which must be equal."""
    values = [np.array([math.nan if x is None else float(x) for x in one["values"]]) for one in outputs]
    return [*values, *(np.array(one["shape"], np.float64) for one in outputs)]
