"""The metric on the accuracy baseline, and with ``--golden`` the flags that explain the source framework's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import ConfigError
from toolkit.adapt.running import data_words, evaluated, flags_of, model_file, task_of, task_request
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work, content_of

TARGET = "onnx"


class Baseline(Stage):
    """Evaluate on target ``onnx`` in float32."""

    name, title, needs = "onnx", "onnx", ("take_in", "export", "task", "data")

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The answers of the source framework."""
        golden = work.request.golden
        return {"golden": "" if golden is None else content_of(golden)}

    def run(self, work: Work) -> Outcome:
        """Return the metric, and with ``--golden`` the flags that the scripts get."""
        if self.name in work.records:
            work.records[self.name].facts = {}  # flags of an earlier run do not count
        flags, said = _explained(work)
        report = evaluated(work, TARGET, "float32", flags={**flags_of(work), **flags})
        facts = {
            "metric_name": report.metric_name,
            "metric": report.metric,
            "higher_is_better": report.higher_is_better,
            "secondary": report.secondary,
            "samples": report.samples,
            "flags": flags,
            "golden": said,
        }
        line = f"{report.metric_name} {report.metric:.6g} on {report.samples} samples"
        line += f"; {said}" if said else ""
        if work.facts("take_in").get("random"):
            line += "; random weights: it means nothing"
        return Outcome(line, facts, notes=report.warnings, status="done" if report.sound else NOTED)


def _explained(work: Work) -> tuple[dict[str, Any], str]:
    """Return the flags that explain the answers of ``--golden``, and a sentence about them."""
    from toolkit.fix.choices import Questions, as_flags, explain
    from toolkit.fix.opening import SampleRequest

    golden = work.request.golden
    if golden is None:
        return {}, ""
    if not golden.is_file():
        raise ConfigError(f"--golden {golden} does not exist; check the path")
    task = task_of(work)
    if not task.export_settings:
        return {}, f"task {task.name} has no settings of preprocessing to try; --golden was not used"
    asked, dims = task_request(work)
    wanted = SampleRequest(data_words(work), work.request.batch, None, {}, dims, asked)
    report, done = explain(model_file(work), Questions(golden, None), wanted)
    values = dict(report.data["found"])
    if not done:
        return {}, f"no setting explains {golden.name}: {report.lead}"
    return values, f"{golden.name} is explained by {as_flags(values)}" if values else f"as {golden.name} says"
