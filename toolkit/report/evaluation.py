"""Accuracy and wall time of a model on several targets, each measured by its valid script in a process of its own."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine import engine_class
from model_config.cases.config import Case, Command
from model_config.judge.accuracy import baseline_of
from model_config.judge.gate import judge_figures
from model_config.results import Accuracy
from tecoinfer_modelzoo import python_path
from tecoinfer_modelzoo.text import one_line, shortened
from toolkit.zoo import Model

BASELINE = ("onnx", "float32")
"""Target and dtype of the accuracy baseline."""

_METRIC = re.compile(r"^eval_metric (\S+)$", re.MULTILINE)
_SUMMARY = re.compile(r"(\w+): ([-+.\deE]+)")
_LONGEST = 300
"""Maximum characters of a reason."""


@dataclass(frozen=True)
class Run:
    """An evaluation on one target.

    Attributes:
        target, dtype: of the run. result: the JSON of the valid script, or the figures of its two closing lines.
        reason: why there is no result, in one line; empty if there is one. seconds: wall time of the process.
        batch: samples per call, if the case says it.
        accuracy: comparison with the baseline's metric; ``None`` for the baseline, and without either metric.
    """

    target: str
    dtype: str
    result: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    accuracy: Accuracy | None = None
    batch: int | None = None

    @property
    def metric(self) -> float | None:
        """The metric, ``None`` without a result."""
        value = self.result.get("metric")
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def simulated(self) -> bool:
        """Whether the device of the run is simulated; its wall times are those of the host that simulates it."""
        return bool(self.result.get("simulated"))


@dataclass(frozen=True)
class Plan:
    """What is run: the model and a case with a valid step, samples to stop after (``None``: all), seconds per run."""

    model: Model
    case: Case
    step: Command
    samples: int | None
    timeout: float
    root: Path


def evaluations(plan: Plan, targets: Sequence[str]) -> list[Run]:
    """Evaluate a case on the baseline and on the targets; a target that fails has a reason instead of a result.

    Args:
        plan: the case and the limits. targets: names; on the case's own target its own dtype is used.
    """
    own = (str(plan.step.params.get("target", "sdaa")), str(plan.step.params.get("dtype", "") or ""))
    wanted = dict.fromkeys([BASELINE, *((one, own[1] if one == own[0] else _dtype(one)) for one in targets)])
    runs = [_run(plan, target, dtype or _dtype(target), is_own=target == own[0]) for target, dtype in wanted]
    return [runs[0], *(_judged(one, runs[0], plan.case) for one in runs[1:])]


def _dtype(target: str) -> str:
    try:
        return engine_class(target).default_dtype
    except Exception:  # noqa: BLE001 - a third party's engine may fail in any way; the run reports it
        return "float32"


def _judged(run: Run, baseline: Run, case: Case) -> Run:
    if run.metric is None or baseline.metric is None:
        return run
    how: dict[str, Any] = {"metric_name": str(run.result.get("metric_name") or "metric")}
    how |= {"tolerance": case.accuracy.tolerance, "against": "onnx float32"}
    how |= {"higher_is_better": run.result.get("higher_is_better") is not False}
    return replace(run, accuracy=judge_figures(run.metric, baseline.metric, **how))


def _run(plan: Plan, target: str, dtype: str, *, is_own: bool) -> Run:
    """Run the valid script of the case on a target, with the file of the case or, elsewhere, that of the baseline."""
    ckpt = plan.step.params.get("ckpt") if is_own else baseline_of(plan.case, plan.step, plan.model.folder)
    params = {**plan.step.params, "target": target, "dtype": dtype}
    params |= {} if ckpt is None else {"ckpt": ckpt}
    if not is_own:
        params.pop("pass_path", None)
    size = params.get("batch_size")
    batch = size if isinstance(size, int) and size > 0 else None
    with tempfile.TemporaryDirectory(prefix="teco-report-") as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, plan.step.run_file, *Command("valid", plan.step.run_file, params).arguments]
        environment = {**os.environ, "PYTHONPATH": python_path(plan.root)}
        if plan.samples is not None:
            steps = -(-plan.samples // (batch or 1))
            environment["TECO_INFER_PIPELINES_MAX_STEPS"] = str(steps)
        text, reason = _output([*command, "--json", str(file)], plan, environment)
        if "unrecognized arguments: --json" in reason:  # a script in the historical style
            text, reason = _output(command, plan, environment)
        result = _read(file) or ({} if reason else _closing(text))
    if not result and not reason:
        reason = "the script printed no metric"
    return Run(target, dtype, result, "" if result else reason, batch=batch)


def _output(command: Sequence[str], plan: Plan, environment: Mapping[str, str]) -> tuple[str, str]:
    """Run a command in the model's folder; return what it printed, and why it failed in one line ("" if it did not)."""
    try:
        ran = subprocess.run(
            command,
            cwd=plan.model.folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=plan.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"stopped after {plan.timeout:g} s; give it more with --timeout"
    except OSError as error:
        return "", one_line(error)
    if ran.returncode == 0:
        return ran.stdout, ""
    lines = [line for line in ran.stderr.strip().splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    reason = last.removeprefix("error: ") or f"the script ended with exit code {ran.returncode}"
    return ran.stdout, shortened(reason, _LONGEST)


def _read(file: Path) -> dict[str, Any]:
    """Return the JSON of a run; empty if there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _closing(text: str) -> dict[str, Any]:
    """Return the figures of the two closing lines, which every valid script prints."""
    found = _METRIC.findall(text)
    if not found:
        return {}
    summary = next((line for line in reversed(text.splitlines()) if line.startswith("summary: ")), "")
    figures = {name: float(value) for name, value in _SUMMARY.findall(summary)}
    try:
        value = float(found[-1])
    except ValueError:
        value = math.nan
    return {"metric_name": "eval_metric", "metric": value, **figures}
