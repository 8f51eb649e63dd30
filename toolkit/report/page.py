"""A report as one HTML page that makes no request, and as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from tecoinfer_modelzoo.json_values import plain
from toolkit.output import PAGES, Column, ToolReport, shown
from toolkit.report.model import ModelReport, data


def html(report: ModelReport) -> str:
    """Return the page; raise ConfigError if jinja2 is not installed."""
    return PAGES.render("report.html.j2", report=report, filled=filled, shown=shown)


def filled(section: ToolReport) -> list[Column]:
    """Return the columns of a section that have a value in any row."""
    return [column for column in section.columns if any(row.get(column.key) not in (None, "") for row in section.rows)]


def json_text(report: ModelReport) -> str:
    """Return the report as JSON; infinities and NaN are strings."""
    return json.dumps(plain(data(report), _leaf), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _leaf(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
