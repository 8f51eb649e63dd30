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
from utils.pages.page import Pages

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1  # version of the JSON files; raised when a field is removed or changes its meaning
PAGES = Pages(Path(__file__).resolve().parent / "pages")
_LONGEST_CELL = 200  # largest number of characters of a value on the terminal; files and pages are not shortened
_WIDEST = 1100  # pixels of the longer side of an image of a page
_HEIGHT, _LEFT, _RIGHT = 220.0, 64.0, 990.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str  # key of the value in a row
    label: str  # heading
    numeric: bool = False  # holds numbers, aligned right
    brief: bool = True  # shown on the terminal; files and pages show all columns
    spare: int = 0  # columns above 0 are dropped on a narrow terminal, largest first; pages sort columns by it


@dataclass(frozen=True, slots=True)
class Line:
    """Curve of a :class:`Chart`: one value per position; ``None`` or NaN is a gap, 0 is drawn at the lower edge."""

    label: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of positive values on a logarithmic axis."""

    title: str  # heading
    axis: str  # label of the horizontal axis
    lines: Sequence[Line]  # curves of equal length
    limit: float | None = None  # value of a horizontal line, such as a threshold
    mark: int | None = None  # position to highlight

    @property
    def decades(self) -> tuple[int, int]:
        """Exponents of the powers of ten that enclose all values."""
        shown = [value for line in self.lines for value in line.values if _shown(value)]
        logs = [math.log10(value) for value in (*shown, self.limit) if value]
        low, high = math.floor(min(logs, default=-1)), math.ceil(max(logs, default=0))
        if self.limit and any(value == 0 for line in self.lines for value in line.values):
            low = min(low, math.ceil(math.log10(self.limit)) - 1)  # zeros are drawn below the limit
        return low, max(high, low + 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Height and label of every n-th power of ten, n growing with the range."""
        low, high = self.decades
        return [(self.height(10.0**power), f"1e{power}") for power in range(low, high + 1, 1 + (high - low) // 8)]

    def x(self, position: int) -> float:
        """Return the x coordinate of a position."""
        count = max((len(line.values) for line in self.lines), default=1)
        return round(_LEFT + (_RIGHT - _LEFT) * (position + 0.5) / max(count, 1), 1)

    def height(self, value: float) -> float:
        """Return the y coordinate of a value; infinite values are at the upper edge."""
        low, high = self.decades
        share = (math.log10(value) - low) / (high - low) if math.isfinite(value) else 1.0
        return round(10 + (_HEIGHT - 10) * (1 - min(1.0, max(0.0, share))), 1)

    def paths(self, line: Line) -> list[str]:
        """Return the points of each unbroken piece of a curve; a single point is doubled, which draws a dot."""
        lowest = 10.0 ** self.decades[0]
        pieces: list[list[str]] = [[]]
        for i, value in enumerate(line.values):
            if value is None or math.isnan(value):
                pieces.append([])
                continue
            pieces[-1].append(f"{self.x(i)},{self.height(value if value > 0 else lowest)}")
        return [" ".join(piece * 2 if len(piece) == 1 else piece) for piece in pieces if piece]

    @property
    def description(self) -> str:
        """Text alternative of the chart."""
        peaks = [
            f"{line.label} up to {max((v for v in line.values if v is not None and _shown(v)), default=0.0):.3g}"
            for line in self.lines
        ]
        return f"{self.title}: {', '.join(peaks)}"


def _shown(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


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


def print_or_write(data: Any, path: Path | None, lines: Iterable[str]) -> None:
    """Print the lines of a result and write its JSON; with JSON on standard output print no lines.

    Args:
        data: the result as plain data. path: value of ``--json``. lines: the result as text.

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
    filled = [column for column in report.columns if any(row.get(column.key) not in (None, "") for row in report.rows)]
    columns = sorted(filled, key=lambda column: column.spare)
    images = thumbnails(report.images, _WIDEST) if report.images else []
    return PAGES.render("tool.html.j2", report=report, columns=columns, shown=shown, images=images)


def shown(value: Any) -> str:
    """Return the display text of a value."""
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, float):
        return f"{value:.6g}" if 0.9 < abs(value) < 1.1 else f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value)) or "scalar"
    return clean_line(str(value))


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
        table.add_column(column.label, justify="right" if column.numeric else "left", overflow="fold")
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
