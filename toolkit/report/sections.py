"""The sections of a report: each is a table with its sentence, notes and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import EngineSpec, TargetError, TecoInferError, find_pass
from engine.sdaa import load_card, spa_count
from model_config.results import Verdict
from tecoinfer_modelzoo.formatting import percent, plural, seconds
from toolkit.output import Column, ToolReport
from toolkit.report.evaluation import BASELINE, Run

if TYPE_CHECKING:
    from toolkit.fix.opening import SampleRequest
    from toolkit.profile.record import Profile

COMMAND = "teco report"
TOP = 25
"""Largest number of rows of a table of layers or of nodes; the JSON has the same rows."""

BATCHES = (1, 16, 64)
"""Batch sizes of the whole card for which costs are simulated."""

MIB = 2**20


@dataclass(frozen=True)
class ModelFile:
    """One ONNX file of a model.

    Attributes:
        name: of the model in its task; empty for the only one. path: the file.
        wanted: samples for overflow and sizes. pass_path: pass file of the case, or ``None``.
        home: folder to which paths of samples are relative, or ``None``.
        baseline: the float32 file of the same model, if there is one; ``None``: the file itself.
    """

    name: str
    path: Path
    wanted: SampleRequest
    pass_path: Path | None = None
    baseline: Path | None = None
    home: Path | None = None

    @property
    def baseline_file(self) -> ModelFile:
        """The file that the baseline runs."""
        return self if self.baseline is None else replace(self, path=self.baseline, pass_path=None)

    @property
    def suffix(self) -> str:
        """End of the titles of the file's sections."""
        return f", {self.name}" if self.name else ""


def attempt(title: str, make: Callable[[], ToolReport]) -> ToolReport:
    """Return a section; if it cannot be made, one without rows whose sentence says why."""
    try:
        return replace(make(), title=title)
    except TecoInferError as error:
        return ToolReport(COMMAND, title, f"not available: {error}", (), ())


def accuracy(runs: Sequence[Run]) -> ToolReport:
    """Return the metric on every target, and its change from the baseline's."""
    columns = (
        Column("target", "target"),
        Column("dtype", "dtype"),
        Column("metric", "metric"),
        Column("value", "value", numeric=True),
        Column("change", "change", numeric=True),
        Column("verdict", "verdict"),
        Column("samples", "samples", numeric=True, spare=1),
        Column("note", "note", spare=2),
    )
    rows = [_accuracy_row(run) for run in runs]
    bad = frozenset(i for i, run in enumerate(runs) if run.reason or _failed(run))
    notes = [f"{run.target} {run.dtype}: {line}" for run in runs for line in _warnings(run)]
    return ToolReport(COMMAND, "Accuracy", _accuracy_lead(runs), columns, rows, bad, notes=notes)


def _failed(run: Run) -> bool:
    return run.accuracy is not None and run.accuracy.verdict is Verdict.FAIL


def _accuracy_row(run: Run) -> dict[str, Any]:
    found = run.accuracy
    is_baseline = (run.target, run.dtype) == BASELINE
    return {
        "target": run.target,
        "dtype": run.dtype,
        "metric": run.result.get("metric_name"),
        "value": run.metric,
        "change": None if found is None else percent(found.relative_difference),
        "verdict": "baseline" if is_baseline and not run.reason else None if found is None else found.verdict.value,
        "samples": run.result.get("samples"),
        "note": run.reason or ("simulated card" if run.simulated else ""),
    }


def _accuracy_lead(runs: Sequence[Run]) -> str:
    baseline = runs[0]
    if baseline.metric is None:
        return f"the baseline has no metric: {baseline.reason}"
    judged = [run for run in runs if run.accuracy is not None]
    failed = [run.target for run in judged if _failed(run)]
    without = [run.target for run in runs[1:] if run.accuracy is None]
    name = baseline.result.get("metric_name") or "metric"
    lead = f"{name} {baseline.metric:.6g} on the baseline (onnx, float32)"
    if failed:
        lead += f"; beyond the tolerance on {', '.join(failed)}"
    elif judged:
        lead += f"; within the tolerance of {judged[0].accuracy.tolerance:.2%} on {plural(len(judged), 'other target')}"  # type: ignore[union-attr]
    return lead + (f"; no result on {', '.join(without)}" if without else "")


def _warnings(run: Run) -> Iterator[str]:
    """Yield the reason of a run without a result, or its warnings, without those on single samples."""
    if run.reason:
        yield run.reason
    if run.result.get("finished") is False:
        yield f"only the first {run.result.get('samples')} samples were run"
    for key in ("hints", "data_warnings"):
        yield from map(str, run.result.get(key) or ())
    for key, what in (("failures", "could not be run"), ("nan_inputs", "have NaN in their input"),
                      ("nan_outputs", "have NaN in their output")):  # fmt: skip
        if count := len(run.result.get(key) or ()):
            yield f"{plural(count, 'sample')} {what}"


def speed(runs: Sequence[Run], processor: str) -> ToolReport:
    """Return the wall times of the evaluations on this host; those of a simulated card are not times of a card."""
    columns = (
        Column("target", "target"),
        Column("dtype", "dtype"),
        Column("sps", "samples/s", numeric=True),
        Column("inference", "engine, ms per batch", numeric=True),
        Column("preprocess", "preprocessing, ms per batch", numeric=True, spare=1),
        Column("e2e", "whole run, s", numeric=True, spare=2),
        Column("batch", "batch", numeric=True),
        Column("what", "is a time of"),
    )
    done = [run for run in runs if run.result]
    rows = [
        {
            "target": run.target,
            "dtype": run.dtype,
            "sps": _rounded(run.result.get("avg_sps")),
            "inference": _milliseconds(run.result.get("avg_inference_time")),
            "preprocess": _milliseconds(run.result.get("avg_preprocess_time")),
            "e2e": run.result.get("e2e_time"),
            "batch": run.batch,
            "what": "the host that simulates the card" if run.simulated else "this host",
        }
        for run in done
    ]
    lead = f"measured wall times of {plural(len(rows), 'evaluation')} on {processor}, one run each"
    return ToolReport(COMMAND, "Speed on this host", lead if rows else "no evaluation was run", columns, rows)


def _rounded(value: Any) -> Any:
    """Return a number of at least 100 as a whole one."""
    return round(value) if isinstance(value, float) and 100 <= value < 1e15 else value


def _milliseconds(value: Any) -> float | None:
    return value * 1e3 if isinstance(value, (int, float)) else None


def card(file: ModelFile) -> ToolReport:
    """Return the simulated latency, throughput and memory of the card, with the size of the model."""
    from toolkit.profile.costs import cost_of

    found = cost_of(file.path, BATCHES)
    columns = (
        Column("batch", "batch", numeric=True),
        Column("latency", "latency, ms (simulated)", numeric=True),
        Column("throughput", "samples/s (simulated)", numeric=True),
        Column("memory", "memory per SPA, MiB (simulated)", numeric=True),
    )
    rows = [
        {
            "batch": one.batch,
            "latency": one.latency * 1e3,
            "throughput": _rounded(one.throughput),
            "memory": one.memory / MIB,
        }
        for one in found.simulated
    ]
    description = load_card()
    facts = {
        "parameters": f"{found.parameters / 1e6:.3g} million",
        "multiply-adds per sample": f"{found.multiply_adds / 1e9:.3g} billion",
        "storage on the card": found.dtype,
        "input of one sample": "; ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in found.inputs.items()),
    }
    lead = f"{description.name}: all times and memory are simulated by its cost model, none was measured"
    notes = [found.sizes] if "default sizes" in found.sizes else []
    if found.unknown:
        notes.append(f"{plural(len(found.unknown), 'node')} of data-dependent size are not counted")
    return ToolReport(COMMAND, "Simulated card", lead, columns, rows, facts=facts, notes=notes)


def operators(file: ModelFile, targets: Sequence[str]) -> ToolReport:
    """Return the support of every operator on every target, by its table and by trials."""
    from toolkit.ops.judge import judge_file, summary
    from toolkit.ops.table import LACKING, LEVELS, load_table
    from toolkit.ops.trial import trial_of

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    leads, notes, lacking = [], list[str](), set[tuple[str, str]]()
    counted = ""  # the target whose judgements give the number of nodes
    for target in targets:
        try:
            table = load_table(target)
            found, more = judge_file(file.path, table, trial=trial_of(target))
        except (TargetError, TecoInferError) as error:
            notes.append(f"{target}: {error}")
            continue
        leads.append(summary(found, target))
        counted = counted or target
        notes += [line for line in more if line not in notes]
        for one in found:
            key = (one.need.op, " ".join(map(str, one.need.reads)))
            row = rows.setdefault(key, {"op": one.need.op, "count": 0, "reads": key[1], "fix": ""})
            row["count"] += len(one.need.nodes) if target == counted else 0
            row[target] = max(row.get(target, one.level), one.level, key=LEVELS.index)  # the worst of its forms
            if one.level in LACKING:
                lacking.add(key)
                row["fix"] = row["fix"] or one.fix
    columns = [
        Column("op", "operator"),
        Column("count", "nodes", numeric=True),
        Column("reads", "reads", spare=1),
        *(Column(target, target) for target in targets),
        Column("fix", "what to do", spare=2),
    ]
    bad = frozenset(i for i, key in enumerate(rows) if key in lacking)
    return ToolReport(COMMAND, "Operators", "; ".join(leads), columns, list(rows.values()), bad, notes=notes)


def overflow(file: ModelFile) -> ToolReport:
    """Return the nodes with values that float16 cannot represent; without any, those with the largest values."""
    from toolkit.commands.overflow import examine

    found = examine(file.path, file.wanted, file.pass_path)
    marked = sorted(found.bad)
    by_size = sorted(range(len(found.rows)), key=lambda i: -float(found.rows[i].get("largest") or 0.0))
    kept = list(dict.fromkeys([*marked, *by_size]))[:TOP]
    wanted = ("name", "op", "largest", "smallest", "beyond", "below", "inf", "nan", "saturated", "flushed", "trigger")
    columns = [column for column in found.columns if column.key in wanted]
    facts = {name: _inside(value, file.home) for name, value in found.facts.items() if name != "model"}
    rows = [{column.key: _inside(found.rows[i].get(column.key), file.home) for column in columns} for i in kept]
    bad = frozenset(place for place, i in enumerate(kept) if i in found.bad)
    notes = [*found.notes, *_cut(len(found.rows), len(rows), "with the largest values")]
    return replace(found, columns=columns, rows=rows, bad=bad, facts=facts, notes=notes)


def _inside(value: Any, home: Path | None) -> Any:
    """Return a text without the folder of the model before paths: a page to send shows no folders of its sender."""
    return value.replace(f"{home}/", "") if home is not None and isinstance(value, str) else value


def _cut(total: int, shown: int, which: str) -> list[str]:
    return [f"the {shown} of {total} rows {which}; teco overflow has all"] if shown < total else []


def layers(file: ModelFile, target: str) -> ToolReport:
    """Return the slowest steps on a target: simulated on sdaa, measured on onnx."""
    profile = _profiled(file, target)
    columns = (
        Column("name", "step"),
        Column("op", "operator"),
        Column("time", f"time ({profile.kind})", numeric=True),
        Column("share", "share", numeric=True),
        Column("bound", "bound by"),
        Column("module", "module", spare=1),
    )
    slowest = sorted(profile.steps, key=lambda step: -step.seconds)[:TOP]
    rows = [
        {
            "name": step.name,
            "op": step.op_type,
            "time": seconds(step.seconds),
            "seconds": step.seconds,
            "share": f"{profile.share(step.seconds):.1%}",
            "bound": step.bound,
            "module": step.module,
        }
        for step in slowest
    ]
    notes = [*profile.notes, *(f"{one.kind}: {one.text}; {one.fix}" for one in profile.bottlenecks)]
    if len(slowest) < len(profile.steps):
        notes.append(f"the {len(slowest)} slowest of {plural(len(profile.steps), 'step')}; teco profile has all")
    return ToolReport(COMMAND, "", profile.lead, columns, rows, notes=notes)


def _profiled(file: ModelFile, target: str) -> Profile:
    from engine.onnx import load_model
    from toolkit.profile.card import prepare, profile_prepared
    from toolkit.profile.host import profile_host
    from toolkit.profile.sizes import sizes_of

    model = load_model(file.path)
    if target == "sdaa":
        spec = EngineSpec(file.path, 1, pass_path=file.pass_path or find_pass("default_pass.py"))
        sizes = sizes_of(model, file.path, -(-1 // spa_count(spec)), file.wanted)
        return profile_prepared(spec, prepare(spec, sizes.shapes, compare=False))
    spec = EngineSpec(file.path, 1)
    return profile_host(spec, sizes_of(model, file.path, 1, file.wanted).shapes)


def files(paths: Sequence[ModelFile]) -> ToolReport:
    """Return inputs, outputs, size and hash of every model file."""
    from engine.onnx import dims, graph_inputs, load_model, model_content

    columns = (
        Column("file", "file"),
        Column("bytes", "bytes", numeric=True),
        Column("weights", "weights"),
        Column("inputs", "inputs"),
        Column("outputs", "outputs"),
        Column("opset", "opset", numeric=True),
        Column("sha256", "sha256", spare=1),
    )

    def shape(info: Any) -> str:
        return f"{info.name} {'x'.join('?' if size is None else str(size) for size in dims(info)) or 'scalar'}"

    rows = []
    every = dict.fromkeys(path for file in paths for path in (file.path, file.baseline_file.path))
    for path in every:
        model = load_model(path)
        elements: dict[str, int] = {}
        for tensor in model.graph.initializer:
            kind = _kind(tensor.data_type)
            elements[kind] = elements.get(kind, 0) + prod(tensor.dims)
        rows.append({
            "file": path.name,
            "bytes": path.stat().st_size,
            "weights": ", ".join(f"{count} {kind}" for kind, count in sorted(elements.items(), key=lambda x: -x[1])),
            "inputs": ", ".join(map(shape, graph_inputs(model))),
            "outputs": ", ".join(map(shape, model.graph.output)),
            "opset": next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), None),
            "sha256": model_content(path).sha256,
        })  # fmt: skip
    return ToolReport(COMMAND, "Files", plural(len(rows), "ONNX file"), columns, rows)


def _kind(data_type: int) -> str:
    from onnx import TensorProto

    name: str = TensorProto.DataType.Name(data_type)
    return name.lower()
