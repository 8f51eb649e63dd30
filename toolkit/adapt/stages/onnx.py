"""The metric on the accuracy baseline, and with ``--golden`` the flags that explain the source framework's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolkit.adapt.golden import Explained, explained
from toolkit.adapt.guesses import GENERIC
from toolkit.adapt.running import evaluated, flags_of
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work, content_of

if TYPE_CHECKING:
    from utils.pipeline.report.report import Report

TARGET = "onnx"


ROUNDING = 1e-6
"""Largest error of outputs that differ from the expected arrays by float32's rounding alone."""


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
        own = _are_own_outputs(work, report)
        if own:
            line += "; the expected arrays are the model's own outputs, so that the gate allows float16 no error:"
            line += " leave --data out, or give --default metric=equal"
        status = "done" if report.sound and found.reached and not own else NOTED
        return Outcome(line, facts, notes=report.warnings, status=status)


def _are_own_outputs(work: Work, report: Report) -> bool:
    """Return whether the expected arrays of the generic task are what the model computes: an error near 0."""
    real = work.facts("data")["real"] and work.facts("task")["task"] == GENERIC
    return bool(real and not report.higher_is_better and 0 <= report.metric < ROUNDING)
