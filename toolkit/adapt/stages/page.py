"""The page at the end: the stages, what they found, and what is left to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.adapt.stage import Stage
from toolkit.adapt.work import FAILED, Outcome, Work
from toolkit.output import Column, ToolReport, html_text, write_text

FILE = "adapt.html"

COLUMNS = (
    Column("name", "stage"),
    Column("status", "status"),
    Column("seconds", "seconds", numeric=True),
    Column("line", "result"),
)


class Page(Stage):
    """Write a self-contained page."""

    name, title, optional = "page", "page", True

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """All results."""
        return {name: [record.line, record.status] for name, record in work.records.items() if name != self.name}

    def run(self, work: Work) -> Outcome:
        """Return the file. Raises ConfigError if jinja2 is not installed."""
        path = work.folder / FILE
        write_text(path, html_text(report(work)), "out")
        return Outcome(str(path), {"file": FILE}, [path])


def report(work: Work) -> ToolReport:
    """Return the page's content."""
    records = {name: one for name, one in work.records.items() if name != Page.name}
    rows = [
        {"name": name, "status": one.status, "seconds": one.seconds, "line": one.line} for name, one in records.items()
    ]
    bad = frozenset(i for i, row in enumerate(rows) if row["status"] == FAILED)
    check = work.facts("check")
    lead = f"{work.request.name}: {check['verdict']}" if check else f"{work.request.name}: not checked yet"
    notes = [f"{name}: {note}" for name, one in records.items() for note in one.notes]
    facts = {"model": work.request.model, "folder": str(work.facts("scaffold").get("folder", ""))}
    return ToolReport("teco adapt", work.request.name, lead, COLUMNS, rows, bad, facts, notes)
