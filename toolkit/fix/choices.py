"""``teco fix --golden`` and ``--reference`` for tasks with export settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError, Engine, open_engine
from toolkit.fix.choice_search import FoundChoices, Step, find_choices
from toolkit.fix.choice_trials import Agreement, Bench, Goal, raw_goal
from toolkit.fix.opening import SampleRequest, open_samples
from toolkit.fix.records import TaskMeasure
from toolkit.fix.task_samples import TaskSamples
from toolkit.output import Column, ToolReport
from utils.arrays import read_npz
from utils.tasks.base import ExportSetting

SHOWN = 40
"""Number of best trials in the report."""

AGREE = 0.005
"""Largest relative difference of final answers that count as equal."""


@dataclass(frozen=True)
class Questions:
    """Values of the source model to explain: ``golden``: file of its arrays (.npz) or final answers; ``reference``: its
    value of ``metric`` (``None``: the task's own, or ``close`` for arrays).
    """

    golden: Path | None
    reference: float | None
    metric: str | None = None


def leaves_decoding_out(settings: Sequence[ExportSetting]) -> bool:
    """Return whether no setting is one of the decoding, so that a wrong last step (softmax) is none of them."""
    return all(one.stage == "prepare" for one in settings)


def as_flags(values: Mapping[str, Any]) -> str:
    """Return values as command-line flags: ``--box_format xywh --enlarge false``."""
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
    return " ".join(f"--{key} {word}" for key, word in words.items())


def explain(
    path: Path, asked: Questions, wanted: SampleRequest, on_trial: Callable[[Step], None] = lambda step: None
) -> tuple[ToolReport, bool]:
    """Search for the settings that explain the values of the source; return the report, and whether any do.

    Raises ConfigError or DataError if a file or a flag does not fit the task.
    """
    from toolkit.graph.nodes import load_named

    with open_samples(path, load_named(path), wanted) as samples:
        assert isinstance(samples, TaskSamples)  # noqa: S101 - the caller selects a task
        arrays = asked.golden is not None and asked.golden.suffix == ".npz"
        if samples.sharded or (arrays and not samples.one_call):
            raise ConfigError(
                f"arrays can be compared for a single call only, and task {samples.task.name} makes several; pass the "
                "final answers of the source (--golden), or its metric (--reference)"
            )
        next(iter(samples))  # finds samples that cannot be prepared; raises if none can
        spec = replace(samples.spec(path), dtype="float32")
        with open_engine("onnx", spec) as engine:
            found: FoundChoices | None = None
            for goal in _goals(samples, engine, asked):
                found = _found(samples, engine, goal, on_trial, {} if found is None else found.values)
            assert found is not None  # noqa: S101 - one of the two flags is given
        gates = _gates(samples, found)
    report = described(path, samples, goal, found, gates)
    return report, found.reached and (found.confirmed or not found.values)


def _found(
    samples: TaskSamples, engine: Engine, goal: Goal, on_trial: Callable[[Step], None], start: Mapping[str, Any]
) -> FoundChoices:
    choices = [choice for choice in samples.task.export_settings if choice.stage in goal.stages]
    also = samples.labelled and goal.view == "answers" and goal.right is not None
    task_metric = samples.measure(None).make if also else None

    def make(places: Sequence[int]) -> Bench:
        return Bench(samples, engine, goal, choices, list(places), task_metric)

    return find_choices(make, len(samples.dataset), on_trial, start)


def _goals(samples: TaskSamples, engine: Engine, asked: Questions) -> list[Goal]:
    """Return the goals in order: the source's arrays or answers, then its metric."""
    goals = []
    if asked.golden is not None and asked.golden.suffix == ".npz":
        goals.append(_arrays_goal(samples, engine, asked.golden, asked.metric or "close"))
    elif asked.golden is not None:
        goals.append(_answers_goal(samples, asked.golden))
    if asked.reference is not None:
        goals.append(Goal(samples.measure(None), "answers", None, float(asked.reference)))
    return goals


def _arrays_goal(samples: TaskSamples, engine: Engine, file: Path, metric: str) -> Goal:
    arrays = read_npz(file)
    names = [spec.name for spec in engine.inputs]
    goal = raw_goal(names, arrays, [spec.name for spec in engine.outputs], metric)
    count = len(samples.dataset)
    assert goal.right is not None  # noqa: S101
    if any(len(array) < count for array in goal.right):
        raise DataError(f"{file} has {len(goal.right[0])} rows for {count} samples; write it again, or pass --samples")
    return goal


def _answers_goal(samples: TaskSamples, file: Path) -> Goal:
    task = samples.task
    if not task.has_reference():
        raise ConfigError(f"--golden {file}: task {task.name} supports only outputs of the source (.npz)")
    answers = task.reference_answers(file, samples.dataset)
    if all(answer is None for answer in answers):
        raise DataError(f"{file} has no answer for any of the {len(answers)} samples; check --data and its ids")
    agreement = task.agreement
    measure = TaskMeasure(lambda: Agreement(agreement), _never, Agreement.name, task.data_help)
    return Goal(measure, "answers", list(answers), 1.0, AGREE)


def _never(outputs: Any, contexts: Any) -> Any:
    raise AssertionError("not called: a bench decodes")


def _gates(samples: TaskSamples, found: FoundChoices) -> dict[str, float]:
    """Return the task's metric before and after, if it was measured too."""
    before, after = found.task_metric
    if math.isnan(before):
        return {}
    name = samples.measure(None).name
    return {f"{name} before": before} | ({f"{name} after": after} if found.values else {})


def described(
    path: Path, samples: TaskSamples, goal: Goal, found: FoundChoices, gates: Mapping[str, float]
) -> ToolReport:
    """Return the report of a search."""
    name, what = goal.measure.name, {"inputs": " of inputs", "outputs": " of outputs"}.get(goal.view, "")
    facts = {"model": str(path), "data": samples.where, "task": samples.task.name, "metric": name + what}
    facts |= {"reference": f"{goal.reference:g}", "before": f"{found.before:.6g}", "after": f"{found.after:.6g}"}
    facts |= {key: f"{value:.6g}" for key, value in gates.items()}
    facts |= {"trials": str(len(found.steps)), "runs of the model": str(found.runs)}
    explained = found.reached and bool(found.values)
    rows = _rows(found, goal.measure.make().higher_is_better)
    columns = (Column("name", "changed"), Column("metric", name + what, numeric=True), Column("verdict", ""))
    data = {
        "found": found.values if explained else {},
        "flags": as_flags(found.values) if explained else "",
        "store": {samples.task.metadata_key: found.values} if explained and samples.task.metadata_key else {},
        "explained": found.reached and (found.confirmed or not found.values),
        "before": found.before,
        "after": found.after,
        "reference": goal.reference,
        "nearest": {"values": found.nearest[0], "metric": found.nearest[1]},
        "equal": found.equal,
        "samples": {"searched": found.seen, "confirmed_on": found.held, "all": samples.count},
        "metrics": gates,
    }
    stands_out = frozenset(i for i, row in enumerate(rows) if row["verdict"] == "explains it")
    notes = _notes(found, samples, gates, explained)
    return ToolReport("teco fix", path.name, _lead(found, goal), columns, rows, stands_out, facts, notes, data=data)


def _rows(found: FoundChoices, higher: bool) -> list[dict[str, Any]]:
    """Return a row per distinct trial, the best first."""
    sign = -1.0 if higher else 1.0
    unique = {json.dumps(step.values, sort_keys=True): step for step in found.steps}
    steps = sorted(unique.values(), key=lambda step: math.inf if math.isnan(step.value) else sign * step.value)
    chosen = [step for step in steps if step.values == found.values and found.values]
    first = chosen + [step for step in steps if step not in chosen]
    rows = []
    for step in first[:SHOWN]:
        verdict = "explains it" if step in chosen and found.reached else "better" if step.better else ""
        rows.append({"name": as_flags(step.values) or "nothing changed", "metric": step.value, "verdict": verdict})
    return rows


def _notes(found: FoundChoices, samples: TaskSamples, gates: Mapping[str, float], explained: bool) -> list[str]:
    notes = [samples.left_out] if samples.left_out else []
    if found.steps:
        notes.append(
            f"searched on {found.seen} samples, confirmed on {found.held} other samples: {len(found.steps)} trials, "
            f"{found.runs} runs of the model"
        )
    notes += [", ".join(f"{key} {value:.5g}" for key, value in gates.items())] if gates else []
    if explained:
        for key, others in found.equal.items():
            words = ", ".join(as_flags({key: other}) for other in others)
            notes.append(f"{words} gives the same on these samples")
        if samples.task.metadata_key:
            text = json.dumps({samples.task.metadata_key: found.values})
            notes.append(f"to store the setting at export instead of passing flags: ModelNotes(notes={text})")
    return notes


def _lead(found: FoundChoices, goal: Goal) -> str:
    name, reference = goal.measure.name, f"{goal.reference:g}"
    change = f"{name} {found.before:.5g} -> {found.after:.5g}, reference {reference}"
    if found.reached and not found.values:
        return f"{name} is {found.before:.5g}, the reference {reference}, without a change"
    if found.reached and found.confirmed:
        return f"this explains it: {as_flags(found.values)} ({change})"
    if found.confirmed:
        return f"no setting explains it; nearest: {as_flags(found.values)} ({change})"
    near = as_flags(found.nearest[0]) or "nothing changed"
    return (
        f"no setting explains it ({name} {found.before:.5g}, reference {reference}); "
        f"the best trial, not significantly better: {near}"
    )
