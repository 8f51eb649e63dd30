"""The metric on the accuracy baseline, and with ``--golden`` the flags that explain the source framework's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.adapt.golden import Explained, explained
from toolkit.adapt.running import evaluated, flags_of
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
        golden = work.request.golden
        found = Explained("") if golden is None else explained(work, golden)
        report = evaluated(work, TARGET, "float32", flags={**flags_of(work), **found.flags})
        facts = {
            "metric_name": report.metric_name,
            "metric": report.metric,
            "higher_is_better": report.higher_is_better,
            "secondary": report.secondary,
            "samples": report.samples,
            "flags": found.flags,
            "golden": found.line,
        }
        line = f"{report.metric_name} {report.metric:.6g} on {report.samples} samples"
        line += f"; {found.line}" if found.line else ""
        if work.facts("take_in").get("random"):
            line += "; random weights: it means nothing"
        status = "done" if report.sound and found.reached else NOTED
        return Outcome(line, facts, notes=report.warnings, status=status)
