"""Output of the tools: a table on the terminal, JSON, CSV, and a self-contained HTML page."""

from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from engine import DataError
from model_config.reports.thumbnails import thumbnails
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, write_stdout
from tecoinfer_modelzoo.formatting import NO_VALUE, as_csv, clean_line
from tecoinfer_modelzoo.json_values import plain
from tecoinfer_modelzoo.terminal import encodable, new_table, open_console, print_line
from tecoinfer_modelzoo.text import shortened
from toolkit.arguments import Parser
from toolkit.chart import Chart
from utils.pages.page import Pages

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1  # version of the JSON files; raised when a field is removed or changes its meaning
PAGES = Pages(Path(__file__).resolve().parent / "pages")
_LONGEST_CELL = 200  # largest number of characters of a value on the terminal; files and pages are not shortened
_WIDEST = 1100  # pixels of the longer side of an image of a page
_PAGE_WIDTH = 155  # characters of a row of a page that is 1280 pixels wide
_PAGE_CELL = 47  # largest number of characters of a cell of a page before it is wrapped
_FEW = 20  # largest number of rows that a page shows without folding


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str  # key of the value in a row
    label: str  # heading
    numeric: bool = False  # holds numbers, aligned right
    brief: bool = True  # shown on the terminal; files and pages show all columns
    spare: int = 0  # columns above 0 are dropped on a narrow terminal, largest first; pages sort columns by it


@dataclass
class ToolReport:
    """Result of a command."""

    command: str  # such as ``teco compare``
    title: str  # such as the model's name
    lead: str  # the result in one sentence
    columns: Sequence[Column]  # of the table
    rows: Sequence[Mapping[str, Any]]  # values by column key
    bad: frozenset[int] = frozenset()  # indices of highlighted rows
    facts: Mapping[str, str] = field(default_factory=dict)  # name -> text, in the head of the page and the JSON
    notes: Sequence[str] = ()  # one line each
    charts: Sequence[Chart] = ()  # charts of the page
    data: Mapping[str, Any] = field(default_factory=dict)  # further fields of the JSON
    images: Sequence[Path] = ()  # files of images that the page shows


def add_output_flags(parser: Parser) -> None:
    """Add ``--json [FILE]``, ``--csv FILE`` and ``--html FILE``."""
    add_json_flag(parser, "everything")
    for form, text in (("csv", "the table"), ("html", "a self-contained page with charts")):
        parser.add_argument(f"--{form}", type=Path, metavar="FILE", help=f"write {text} as {form.upper()}")


def write_files(report: ToolReport, args: Namespace) -> list[Path]:
    """Write the files of ``--json``, ``--csv`` and ``--html``; return their paths, without standard output.

    Raise DataError if a file cannot be written, ConfigError if jinja2 is not installed.
    """
    makers = {"json": json_text, "csv": csv_text, "html": html_text}
    asked = {form: Path(getattr(args, form)) for form in makers if getattr(args, form)}
    if asked.get("json") == STDOUT:
        write_stdout(json_text(report))
        del asked["json"]
    return [write_text(path, makers[form](report), form) for form, path in asked.items()]


def write_text(path: Path, text: str, form: str) -> Path:
    """Write a file atomically, creating its folder; return the path.

    Args:
        path: output file. text: its content. form: the flag that names the path, without ``--``.

    Raise DataError if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}; choose another --{form}") from error
    return path


def print_or_write(data: Mapping[str, Any], path: Path | None, lines: Iterable[str]) -> None:
    """Print the lines of a result and write its JSON; with JSON on standard output print no lines.

    Args:
        data: the result as plain data, with its ``schema_version``.
        path: value of ``--json``.
        lines: the result as text.

    Raises:
        DataError: the file cannot be written.
    """
    text = json.dumps(data, indent=2) + "\n"
    if path == STDOUT:
        write_stdout(text)
        return
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if path is not None:
        print_written([write_text(path, text, "json")])


def json_text(report: ToolReport) -> str:
    """Return the whole report as JSON; infinities and NaN are strings."""
    head = {"schema_version": SCHEMA_VERSION, "command": report.command, "title": report.title, "lead": report.lead}
    body = {"facts": report.facts, "notes": report.notes, **report.data, "rows": report.rows}
    return json.dumps(plain({**head, **body}, _leaf), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _leaf(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(report: ToolReport) -> str:
    """Return the table with all columns and unrounded values."""
    rows = [["" if row.get(c.key) is None else row[c.key] for c in report.columns] for row in report.rows]
    return as_csv([[column.key for column in report.columns], *rows])


def html_text(report: ToolReport) -> str:
    """Return the report as a self-contained page; raise ConfigError if jinja2 is not installed."""
    columns, further = page_columns(report)
    images = thumbnails(report.images, _WIDEST) if report.images else []
    marked = sorted(report.bad) if len(report.bad) < len(report.rows) > _FEW else []
    folded = len(report.rows) > _FEW and bool(report.bad or report.charts)
    values = {"columns": columns, "further": further, "marked": marked, "folded": folded, "images": images}
    return PAGES.render("tool.html.j2", report=report, shown=shown, **values)


def page_columns(report: ToolReport) -> tuple[list[Column], list[Column]]:
    """Return the columns with values that fit the width of a page, and the others; both sorted by ``spare``."""
    filled = [column for column in report.columns if any(row.get(column.key) not in (None, "") for row in report.rows)]
    widths = {
        column.key: 3 + max(len(column.label) + 2, *(_wrapped(row, column) for row in report.rows)) for column in filled
    }
    kept = sorted(filled, key=lambda column: column.spare)
    while sum(widths[column.key] for column in kept) > _PAGE_WIDTH and len(kept) > 1 and kept[-1].spare:
        kept.pop()
    return kept, [column for column in filled if column not in kept]


def _wrapped(row: Mapping[str, Any], column: Column) -> int:
    """Return the number of characters of a cell after wrapping."""
    return min(_PAGE_CELL, len(_cell(row, column)))


def shown(value: Any) -> str:
    """Return the display text of a value."""
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return figure(value)
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value)) or "scalar"
    return clean_line(str(value))


def figure(value: float) -> str:
    """Return a number with thousands separators; of a fraction three significant digits, near 1 six."""
    size = abs(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.6g}" if 0.9 < size < 1.1 else f"{value:.3g}"
    return f"{value:,.0f}" if 999 < size < 1e12 else text


def publish(report: ToolReport, args: Namespace, shown: ToolReport | None = None, limit: int | None = None) -> None:
    """Print a report, or ``shown`` in its place, and write its files even if printing fails; print their paths.

    Raise ConfigError if rich or jinja2 is not installed, DataError if a file cannot be written.
    """
    try:
        print_report(shown or report, limit=limit)
    finally:
        files = write_files(report, args)
    print_written(files)


def print_written(files: Iterable[Path]) -> None:
    """Print the paths of written files."""
    sys.stdout.writelines(f"written: {file}\n" for file in files)


def print_report(report: ToolReport, file: TextIO | None = None, limit: int | None = None) -> None:
    """Print the table with ``bad`` rows highlighted, then the notes and the lead.

    Args:
        report: the result.
        file: output stream; ``None`` is standard output.
        limit: largest number of rows; the number of omitted rows is printed.

    Raise ConfigError if rich is not installed.
    """
    console = open_console(file)
    rows = report.rows[:limit]
    brief = [column for column in report.columns if column.brief]
    columns = _fitting(brief, rows, console.width)
    if rows:
        _print_table(console, columns, rows, report.bad)
    notes = _left_out(len(report.rows) - len(rows), [column.label for column in brief if column not in columns])
    for line in (*notes, *(f"note: {note}" for note in report.notes), report.lead):
        print_line(console, shortened(clean_line(line)))


def _print_table(
    console: Console, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], bad: Collection[int]
) -> None:
    table = new_table(console)
    for column in columns:
        label = encodable(clean_line(column.label), console)  # may hold the name of a file
        table.add_column(label, justify="right" if column.numeric else "left", overflow="fold")
    for i, row in enumerate(rows):
        cells = [encodable(_cell(row, column), console) for column in columns]
        table.add_row(*cells, style="bold red" if i in bad else "")
    console.print(table)


def _cell(row: Mapping[str, Any], column: Column) -> str:
    """Return the shortened display text of a value."""
    return shortened(shown(row.get(column.key)), _LONGEST_CELL)


def _left_out(rows: int, columns: Sequence[str]) -> list[str]:
    """Return notes on the rows and columns that the terminal does not show."""
    where = "--csv, --json and --html have all"
    more = [f"... and {rows} more rows; {where}"] if rows else []
    return [*more, f"note: too narrow for {', '.join(columns)}; {where}"] if columns else more


def _fitting(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> list[Column]:
    """Return the columns that fit the width, dropping those with the largest ``spare`` first."""
    widths = {c.key: max([len(c.label), *(len(_cell(row, c)) for row in rows)]) + 2 for c in columns}
    kept = list(columns)
    while sum(widths[column.key] for column in kept) > width and any(column.spare for column in kept):
        kept.remove(max(kept, key=lambda column: column.spare))
    return kept
