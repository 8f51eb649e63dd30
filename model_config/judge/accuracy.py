"""The accuracy part of a check: the metric of a target compared with the baseline and the source framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError, TecoInferError
from model_config.cases.case import Case, Command, Paths
from model_config.judge.foreign import valued_of
from model_config.judge.gate import judge, judge_figures, read_pairs
from model_config.results import Accuracy, StepResult
from model_config.run.foreign import Foreign
from model_config.written import STRANGE, read_json
from tecoinfer_modelzoo.text import typed_reason
from utils.fetch import kept_path
from utils.pipeline.resume.records import find_records

RunStep = Callable[[Command, str, Sequence[str]], StepResult]
"""Runs a step under another name, with additional arguments that override its own."""

BASELINE = ("--target", "onnx", "--dtype", "float32")
"""Arguments that make a valid step the baseline."""

BASELINE_NAME = "baseline"
"""Name of the baseline's step."""

RANDOM = "random weights: the metric is meaningless, so raw outputs are compared with the baseline's, not accuracy"


def judge_case(
    case: Case,
    step: Command,
    valid: StepResult,
    folder: Path,
    run: RunStep,
    foreign: Foreign | None = None,
    *,
    strict: bool = False,
) -> tuple[list[Accuracy], list[StepResult], list[str]]:
    """Judge the metric of a passed valid step, and the secondary metrics that the case lists.

    Args:
        valid: result of the step.
        folder: the copy of the model's folder with the exported files.
        run: runs the baseline and the source framework's evaluation.
        foreign: computes contributed metrics; default: with the limits of a step.
        strict: also require a 95 % bound within the tolerance, like ``gate: strict`` of the case.

    Returns:
        The comparisons, the additional steps, and notes.
    """
    if any(_weights(kept_path(folder, ckpt)) == "random" for ckpt in step.ckpts.values()):
        return _random(case, folder, run)
    foreign = foreign or Foreign(folder.resolve().parents[case.run_dir.count("/")])
    judged: list[Accuracy] = []
    ran: list[StepResult] = []
    rule = case.accuracy
    baseline = baseline_of(case, step, folder)
    if not _is_baseline(step, baseline):
        words = Command("valid", step.run_file, {"ckpt": baseline}).arguments
        ran.append(run(step, BASELINE_NAME, (*BASELINE, *words)))
        how = _How("onnx float32", rule.tolerance, foreign, strict or rule.gate == "strict")
        judged.append(_against_run(valid, ran[0], how))
        judged += _secondary(rule.secondary_metrics, valid, ran[0], how)
    source = _How(rule.reference_source or "the source framework", rule.reference_tolerance, foreign)
    if rule.run_reference is not None:
        ran.append(run(rule.run_reference, "reference", ()))
        judged.append(_against_run(valid, ran[-1], source))
    elif rule.reference is not None:
        judged.append(_against_figure(valid, rule.reference, source))
    notes = [] if judged else ["the valid step is the baseline itself, and model.yaml has no accuracy.reference"]
    return judged, ran, notes


class _How(NamedTuple):
    """Settings of a comparison."""

    against: str
    tolerance: float
    foreign: Foreign
    strict: bool = False


def _random(case: Case, folder: Path, run: RunStep) -> tuple[list[Accuracy], list[StepResult], list[str]]:
    """Compare the raw outputs of the single or multi step with the most samples."""
    from model_config.judge import agreement

    step = agreement.step_of(case)
    baseline = None if step is None or "ckpt" not in step.params else baseline_of(case, step, folder)
    if step is None or baseline is None or _is_baseline(step, baseline):
        return [], [], [RANDOM]
    files = baseline.values() if isinstance(baseline, Mapping) else [baseline]
    dtype = "float16" if any(_is_half(folder / file) for file in files) else "float32"
    ran = [
        run(step, agreement.OUTPUTS, agreement.words(step)),
        run(step, agreement.BASELINE_OUTPUTS, agreement.words(step, dtype, baseline)),
    ]
    found = agreement.judge_outputs(ran[0], ran[1], str(step.params["dtype"]), f"onnx {dtype}")
    return ([], ran, [RANDOM, found]) if isinstance(found, str) else ([found], ran, [RANDOM])


def _is_half(ckpt: Path) -> bool:
    """Return whether a model has float16 inputs or outputs, so that it cannot run in float32."""
    from onnx import TensorProto

    from engine.onnx import load_model

    graph = load_model(ckpt).graph
    return any(one.type.tensor_type.elem_type == TensorProto.FLOAT16 for one in (*graph.input, *graph.output))


def _weights(ckpt: Path) -> str:
    """Return the export's note about the weights; empty if there is none."""
    from engine.onnx import load_model, metadata
    from utils.stored import ModelMetadata

    try:
        return str(ModelMetadata(metadata(load_model(ckpt))).provenance.get("weights", ""))
    except TecoInferError:  # a file of another engine; the step has run with it
        return ""


def baseline_of(case: Case, step: Command, folder: Path) -> Paths:
    """Return the ONNX files of the baseline: those of the case, the float32 twins of the step's, or the same."""
    if case.accuracy.baseline_ckpt:
        return case.accuracy.baseline_ckpt
    twins = {name: _twin(ckpt, folder) for name, ckpt in step.ckpts.items()}
    return twins if isinstance(step.params["ckpt"], Mapping) else next(iter(twins.values()))


def _twin(ckpt: str, folder: Path) -> str:
    """Return the float32 file of the same model for a float16 file if it exists, else the same file."""
    twin = ckpt.replace("_float16", "")
    return twin if kept_path(folder, twin).is_file() else ckpt


def _is_baseline(step: Command, ckpt: Paths) -> bool:
    params = step.params
    return (params["target"], params["dtype"], params["ckpt"]) == ("onnx", "float32", ckpt)


def _against_run(valid: StepResult, other: StepResult, how: _How) -> Accuracy:
    """Compare with another run over the same data, by the records of both if available."""
    metric = math.nan if valid.eval_metric is None else valid.eval_metric
    reference = math.nan if other.eval_metric is None else other.eval_metric
    by_figures = partial(
        judge_figures,
        metric,
        reference,
        metric_name="eval_metric",
        tolerance=how.tolerance,
        against=how.against,
        higher_is_better=direction(valid.result),
    )
    why = f"cannot be compared with {how.against}: "
    if not other.passed:
        why = f"{how.against} could not be run: {other.reason}"
    else:
        try:
            results = _with_records(valid, other)
            if len(results) == 2:
                return _by_records(results, how)
            return by_figures()
        except DataError as error:
            why += str(error)
        except KeyError as error:
            why += f"a --json file has no {error}; write it as utils.pipeline.cli does"
        except STRANGE as error:  # records that do not fit the metric
            why += typed_reason(error)
    return replace(by_figures(why=why), reason=why)


def _secondary(names: Sequence[str], valid: StepResult, other: StepResult, how: _How) -> list[Accuracy]:
    """Judge secondary metrics of the report by the values of both runs."""
    ours, theirs = (_read(step.result).get("secondary") for step in (valid, other))
    found = []
    for name in names if other.passed else ():
        values = [one.get(name) if isinstance(one, Mapping) else None for one in (ours, theirs)]
        figures = [float(value) if isinstance(value, (int, float)) else math.nan for value in values]
        known = ", ".join(ours) if isinstance(ours, Mapping) else ""
        lacks = f"accuracy.secondary_metrics: the report has no {name}; it has: {known or 'none'}"
        why = lacks if any(map(math.isnan, figures)) else ""
        found.append(
            judge_figures(
                *figures,
                metric_name=name,
                tolerance=how.tolerance,
                against=how.against,
                directed=False,
                why=why,
            )
        )
    return found


def _with_records(*steps: StepResult) -> list[tuple[Path, Path]]:
    """Return the ``--json`` file and the records of each step, for steps that wrote both."""
    written = [step.result for step in steps if step.result is not None]
    found = [(result, find_records(result)) for result in written]
    return [(result, records) for result, records in found if records is not None]


def _by_records(results: Sequence[tuple[Path, Path]], how: _How) -> Accuracy:
    (valid, ours), (other, theirs) = results
    definitions = [_read(path).get("metric_definition") for path in (valid, other)]
    known = [definition for definition in definitions if definition is not None]
    if len(known) == 2 and known[0] != known[1]:
        raise DataError(f"one run measured {known[0]} and the other {known[1]}; measure the same in both")
    figures = [read_result(path)["metric"] for path in (valid, other)]
    pairs = read_pairs(ours, theirs)
    metric = valued_of(known[0], (ours, theirs), pairs, how.foreign) if known else None
    return judge(pairs, *figures, metric_of=metric, tolerance=how.tolerance, against=how.against, strict=how.strict)


def _against_figure(valid: StepResult, reference: float, how: _How) -> Accuracy:
    """Compare with a published value, or one of another machine."""
    result = read_result(valid.result)
    metric = result.get("metric", valid.eval_metric)
    return judge_figures(
        math.nan if metric is None else float(metric),
        reference,
        metric_name=result.get("metric_name", "eval_metric"),
        tolerance=how.tolerance,
        against=how.against,
        higher_is_better=direction(valid.result),
    )


def cut_short(valid: StepResult | None) -> str:
    """Describe the evaluated part of the data; empty if the valid step evaluated all of it."""
    result = {} if valid is None else _read(valid.result)
    if result.get("finished") is not False:
        return ""
    return f"the first {result.get('samples', '?')} samples of the data"


def direction(result: Path | None) -> bool:
    """Return whether a higher metric is better, from the result; default true."""
    return _read(result).get("higher_is_better") is not False


def _read(path: Path | None) -> dict[str, Any]:
    """Return the JSON of a step; empty if it cannot be read."""
    try:
        found = read_json(path) if path is not None else {}
    except STRANGE:
        return {}
    return found if isinstance(found, dict) else {}


def read_result(path: Path | None) -> dict[str, Any]:
    """Return metric and samples of a step's JSON; empty if it cannot be read."""
    try:
        found = _read(path)
        return {
            "metric_name": str(found["metric_name"]),
            "metric": float(found["metric"]),
            "samples": int(found["samples"]),
        }
    except STRANGE:  # a JSON file of another format
        return {}
