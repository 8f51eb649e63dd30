"""A report as one HTML page that makes no request, as JSON and as text on a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tecoinfer_modelzoo.formatting import clean_line
from tecoinfer_modelzoo.json_values import plain
from toolkit.output import PAGES, Column, ToolReport, print_report, shown
from toolkit.report.build import ModelReport, data

PRINTED = 6
"""Largest number of rows of a section on the terminal; the page and the JSON have all."""


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


def print_text(report: ModelReport) -> None:
    """Print the sections, each with its first rows, and the result last; raise ConfigError if rich is missing."""
    for line in _head(report):
        print(line)
    for section in report.sections.values():
        print(f"\n{clean_line(section.title)}")
        print_report(replace(section, columns=filled(section), notes=section.notes[:PRINTED]), limit=PRINTED)
    print(f"\n{clean_line(report.title)}: {clean_line(report.lead)}")


def _head(report: ModelReport) -> Iterator[str]:
    yield clean_line(report.title)
    for name, value in report.facts.items():
        yield f"  {name}: {clean_line(str(value))}"
