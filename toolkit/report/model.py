"""A report on a model as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toolkit.output import ToolReport
from toolkit.report.evaluation import Run
from toolkit.report.sections import COMMAND

SCHEMA_VERSION = 1
"""Version of the JSON file; raised when a field is removed or changes its meaning."""


@dataclass(frozen=True)
class ModelReport:
    """A report.

    Attributes:
        title: name of the model. lead: the result in one sentence. facts: name -> text, for the head.
        sections: key -> section, in order. runs: the evaluations, the baseline first; empty without a case.
        source: what the report is of: ``case``, ``model``, ``path``, ``targets``, ``date``, ``commit``.
    """

    title: str
    lead: str
    facts: Mapping[str, str]
    sections: Mapping[str, ToolReport]
    runs: Sequence[Run] = ()
    source: Mapping[str, Any] = field(default_factory=dict)


def data(report: ModelReport) -> dict[str, Any]:
    """Return a report as plain data."""
    head = {"schema_version": SCHEMA_VERSION, "command": COMMAND, "title": report.title, "lead": report.lead}
    runs = [
        {"target": run.target, "dtype": run.dtype, "reason": run.reason, "result": run.result}
        | {"accuracy": None if run.accuracy is None else asdict(run.accuracy)}
        for run in report.runs
    ]
    parts = {
        key: {"title": one.title, "lead": one.lead, "facts": one.facts, "notes": one.notes, "rows": one.rows}
        for key, one in report.sections.items()
    }
    return {**head, "source": report.source, "facts": report.facts, "runs": runs, "sections": parts}
