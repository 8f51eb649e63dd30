"""The report on a model: all sections, as one page, as JSON and as text."""

from __future__ import annotations

import datetime
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, DataError, TecoInferError, available_targets, find_pass
from model_config.cases.config import ROOT, Case, Command
from model_config.judge.accuracy import baseline_of
from tecoinfer_modelzoo.files import write_file
from toolkit.graph.inputs import model_file
from toolkit.output import ToolReport
from toolkit.own_samples import own_samples
from toolkit.report import sections
from toolkit.report.evaluation import Plan, Run, evaluations
from toolkit.report.model import ModelReport
from toolkit.report.page import html, json_text
from toolkit.report.sections import ModelFile, attempt
from toolkit.zoo import Model, find_case, find_model, load_zoo, summary
from utils.fetch import fetched_path

if TYPE_CHECKING:
    from toolkit.fix.opening import SampleRequest

TIMEOUT = 600.0
"""Seconds after which the evaluation on one target is stopped."""

SAMPLES = 256
"""Maximum number of samples for ranges of values (overflow); accuracy uses all, unless ``samples`` is given."""

NOT_RUN = ("null",)
"""Targets that compute nothing, or nothing that a report is about."""

NO_TIMES = "target {} reports no times of layers; its wall time is under 'Speed on this host'"


@dataclass(frozen=True)
class ReportFiles:
    """Written files: a self-contained page and its data."""

    html: Path
    json: Path


def report_of(
    model: str | Path | Model | Case,
    out: Path,
    *,
    root: Path = ROOT,
    targets: Sequence[str] = (),
    samples: int | None = None,
    timeout: float = TIMEOUT,
) -> ReportFiles:
    """Make the report on a model and write ``<name>_report.html`` and ``<name>_report.json``.

    Args:
        model: a case, a model of the zoo, its folder, any name of it, or an ONNX file (which has no accuracy).
        out: folder of the files, created if missing.
        root: the repository. targets, samples, timeout: as for :func:`build`.

    Raises:
        ConfigError: the model is unknown, or a target is not available. DataError: a file cannot be written.
    """
    return write(build(model, root=root, targets=targets, samples=samples, timeout=timeout), out)


def build(
    model: str | Path | Model | Case,
    *,
    root: Path = ROOT,
    targets: Sequence[str] = (),
    samples: int | None = None,
    timeout: float = TIMEOUT,
) -> ModelReport:
    """Measure everything and return the report.

    Args:
        model: as for :func:`report_of`. root: the repository.
        targets: to evaluate on, besides the baseline; empty: all that are available.
        samples: evaluate only the first samples, rounded up to whole batches; ``None``: all.
        timeout: seconds for the evaluation on one target.

    A section or target that fails holds the reason. Raises ConfigError if the model is unknown, or a target is not
    available.
    """
    wanted = list(targets) or [name for name in available_targets() if name not in NOT_RUN]
    unknown = sorted(set(wanted) - set(available_targets()))
    if unknown:
        raise ConfigError(f"target {unknown[0]!r} is not available here; available: {', '.join(available_targets())}")
    found, case, file = _model_of(model, root)
    if found is None or case is None:
        assert file is not None  # noqa: S101 - one of the two was found
        return _of_file(file, wanted)
    step = next((one for one in case.steps if one.name == "valid"), None)
    if step is None:
        problems = [line for line in load_zoo(root).problems if case.name in line]
        raise ConfigError(problems[0] if problems else f"case {case.name} has no valid step; add run_example_valid")
    runs = evaluations(Plan(found, case, step, samples, timeout, root), wanted)
    made = _sections(_files_of(found, case, step), wanted, runs)
    return ModelReport(
        found.name, made["accuracy"].lead, _facts(found, case, runs), made, runs, _source(found, case, wanted, root)
    )


def _model_of(model: str | Path | Model | Case, root: Path) -> tuple[Model | None, Case | None, Path | None]:
    """Return the model and its case, or the ONNX file."""
    if isinstance(model, Model):
        return model, next(iter(model.cases), None) or _no_case(model.path), None
    if isinstance(model, Case):
        owner, _ = find_model(model.run_dir, load_zoo(root).models)
        return owner, find_case(owner, model.name), None
    name = str(model)
    if Path(name).suffix == ".onnx" or name.startswith("fetch:"):
        return None, None, model_file(name, root)
    owner, case = find_model(name, load_zoo(root).models)
    return owner, case or next(iter(owner.cases), None) or _no_case(owner.path), None


def _no_case(path: str) -> Case:
    raise ConfigError(f"{path} has no case; add one to model.yaml, or pass one of its ONNX files")


def _of_file(file: Path, targets: Sequence[str]) -> ModelReport:
    """Return the report on an ONNX file: without a case there is neither accuracy nor data."""
    from toolkit.fix.opening import SampleRequest

    if not file.is_file():
        raise ConfigError(f"{file} does not exist; check the path, or pass a model of the zoo")
    made = _sections([ModelFile("", file, SampleRequest(None))], targets, ())
    lead = "an ONNX file without a case: accuracy is not known, and ranges of values are those of random inputs"
    return ModelReport(
        file.stem, lead, _environment(), made, (), {"path": str(file), "targets": list(targets), **_when()}
    )


def _files_of(model: Model, case: Case, step: Command) -> list[ModelFile]:
    """Return the model files of the valid step, with the samples of the case; raise ConfigError if one is missing."""
    from toolkit.fix.opening import SampleRequest

    named = step.ckpts
    if not named:
        return [ModelFile("", model_file(case.name, model.root), SampleRequest(None))]
    paths = {name: _located(path, model) for name, path in named.items()}
    baseline = baseline_of(case, step, model.folder)
    twins = dict(baseline) if isinstance(baseline, Mapping) else dict.fromkeys(named, baseline)
    missing = next((path for path in paths.values() if not path.is_file()), None)
    if missing is not None:
        raise ConfigError(f"{missing} does not exist; run 'teco run {model.name} export', and make the report again")
    several = len(paths) > 1
    return [
        ModelFile(
            name if several else "",
            path,
            _samples(model, case, name if several else "", paths),
            _pass_file(step, model),
            _located(twins.get(name, named[name]), model),
            model.folder,
        )
        for name, path in paths.items()
    ]


def _located(path: str, model: Model) -> Path:
    return fetched_path(path) if path.startswith("fetch:") else model.folder / path


def _pass_file(step: Command, model: Model) -> Path | None:
    given = step.params.get("pass_path")
    return None if given is None else find_pass(str(given), model.folder)


def _samples(model: Model, case: Case, name: str, paths: Mapping[str, Path]) -> SampleRequest:
    """Return the samples of the case for one of its models; without a task of its own random ones."""
    from toolkit.fix.opening import SampleRequest

    try:
        own = own_samples(model, case)
    except TecoInferError:  # a script in the historical style
        return SampleRequest(None)
    request = own.request
    if request.task.models:
        others = {other: path for other, path in paths.items() if other != name}
        request = replace(request, model_name=name or request.model_name, others=others)
    return SampleRequest(own.data, 8, SAMPLES, {}, {}, request, own.case)


def _sections(paths: Sequence[ModelFile], targets: Sequence[str], runs: Sequence[Run]) -> dict[str, ToolReport]:
    made: dict[str, ToolReport] = {}
    if runs:
        made["accuracy"] = sections.accuracy(runs)
        made["speed"] = sections.speed(runs, _processor())
    for file in paths:
        key = f"_{file.name}" if file.name else ""
        parts = {
            "card": ("Simulated card: speed and memory", partial(sections.card, file)),
            "operators": ("Operators", partial(sections.operators, file, list(dict.fromkeys(["onnx", *targets])))),
            "overflow": ("Range of values in float16", partial(sections.overflow, file)),
            "layers_sdaa": ("Times of layers on sdaa", partial(sections.layers, file, "sdaa")),
            "layers_onnx": ("Times of layers on onnx", partial(sections.layers, file.baseline_file, "onnx")),
        }
        made |= {f"{part}{key}": attempt(f"{title}{file.suffix}", make) for part, (title, make) in parts.items()}
    others = [name for name in targets if name not in ("sdaa", "onnx")]
    if others and paths:
        last = f"layers_onnx_{paths[-1].name}" if paths[-1].name else "layers_onnx"
        notes = [*made[last].notes, *(NO_TIMES.format(name) for name in others)]
        made[last] = replace(made[last], notes=notes)
    made["files"] = attempt("Files", partial(sections.files, paths))
    return made


def _facts(model: Model, case: Case, runs: Sequence[Run]) -> dict[str, str]:
    about = runs[0].result if runs else {}
    rule = case.accuracy
    facts = {"model": _plain(summary(model.folder / "README.md")), "folder": model.path, "case": case.name}
    facts |= {"domain": model.domain, "task": str(about.get("task") or ""), "data": str(about.get("data") or "")}
    facts["accuracy rule"] = f"at most {rule.tolerance:.2%} from onnx float32"
    if rule.reference is not None:
        facts["source framework"] = f"{rule.reference:g} ({rule.reference_source})"
    return {name: value for name, value in {**facts, **_environment()}.items() if value}


def _plain(text: str) -> str:
    """Return a sentence in Markdown without the addresses of its links and the marks of code and emphasis."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("**", "")


def _environment() -> dict[str, str]:
    from model_config.judge.scorecard import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnx", "onnxruntime"))
    return {"host": _processor(), "software": f"Python {platform.python_version()}, {packages}", **_when()}


def _processor() -> str:
    from engine import usable_cores
    from engine.host import processor_name

    return f"{processor_name() or platform.machine()}, {usable_cores()} cores"


def _when() -> dict[str, str]:
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def _source(model: Model, case: Case, targets: Sequence[str], root: Path) -> dict[str, Any]:
    from model_config.check import commit_of

    where = {"model": model.name, "case": case.name, "path": model.path, "targets": list(targets)}
    return {**where, "commit": commit_of(root), **_when()}


def write(report: ModelReport, out: Path) -> ReportFiles:
    """Write the page and the JSON; raise DataError if a file cannot be written, ConfigError without jinja2."""
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in report.source.get("case", report.title))
    files = ReportFiles(out / f"{name}_report.html", out / f"{name}_report.json")
    texts = {files.html: html(report), files.json: json_text(report)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            write_file(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}; choose another --out") from error
    return files
