"""The pages at the end: the stages with the preview of the data, and the report on the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import TecoInferError
from tecoinfer_modelzoo.text import one_line
from toolkit.adapt.folder import folder_name
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.data import PREVIEW
from toolkit.adapt.work import FAILED, NOTED, Outcome, Work
from toolkit.output import Column, ToolReport, html_text, write_text
from toolkit.report import report_of

FILE = "adapt.html"

COLUMNS = (
    Column("name", "stage"),
    Column("status", "status"),
    Column("seconds", "seconds", numeric=True),
    Column("line", "result"),
)


class Page(Stage):
    """Write two self-contained pages; that of ``teco report`` measures the model on all targets once more."""

    name, title, optional = "page", "page", True

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """All results."""
        records = {name: one for name, one in work.records.items() if name != self.name}
        return {name: [one.line, one.status, one.notes, one.files] for name, one in records.items()}

    def run(self, work: Work) -> Outcome:
        """Return the files. Raises ConfigError if jinja2 is not installed."""
        path = work.folder / FILE
        write_text(path, html_text(report(work)), "out")
        try:
            made = report_of(work.request.root / folder_name(work), work.folder, root=work.request.root)
        except TecoInferError as error:
            why = f"no report on the model: {one_line(error)}"
            return Outcome(f"{path}; {why}", {"file": FILE}, [path], [why], NOTED)
        return Outcome(f"{path}; {made.html}", {"file": FILE, "report": made.html.name}, [path, made.html, made.json])


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
    preview = work.folder / PREVIEW
    images = [preview] if preview.is_file() else []
    return ToolReport("teco adapt", work.request.name, lead, COLUMNS, rows, bad, facts, notes, images=images)
