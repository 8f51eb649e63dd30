"""The result of a check on a terminal, or in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from model_config.reports import text
from model_config.reports.extra import extra
from model_config.results import SEVERITY, CaseResult, CheckResult, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {Verdict.NONE: "dim", Verdict.PASS: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.FAIL: "bold red"}
_PARTS = ("structure", "function", "accuracy", "speed")
_PIPE_WIDTH = 10_000
"""Columns of an output that is no terminal: a table there is cut nowhere."""


def print_table(check: CheckResult, file: TextIO | None = None) -> None:
    """Print one row per case, then the reason of everything that did not pass in full lines, then the verdict.

    Args:
        check: what was found.
        file: where to; ``None`` is standard output. Colours and the terminal's width are used only on a terminal.

    Raises:
        ConfigError: rich is not installed.
    """
    console = open_console(file)
    if check.cases:
        console.print(_table(check, console))
    for line in reason_lines(check):
        _line(console, line)
    if check.logs.parts:
        _line(console, f"logs: {check.logs}")
    _line(console, f"{text.headline(check)}; {text.exit_line(check)}", "bold " + _STYLES[check.verdict])


def open_console(file: TextIO | None = None) -> Console:
    """Return where tables go: with colours and its own width on a terminal, plain and cut nowhere elsewhere.

    Raises:
        ConfigError: rich is not installed.
    """
    with extra("the table"):
        from rich.console import Console
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        return console
    return Console(file=file, highlight=False, emoji=False, markup=False, width=_PIPE_WIDTH, color_system=None)


def reason_lines(check: CheckResult) -> list[str]:
    """Return a line for every problem of the configuration and everything of a case that did not pass."""
    lines = [text.one_line(problem) for problem in check.problems]
    for case in check.cases:
        lines += [text.one_line(f"{case.case}: {reason}") for reason in case.reasons]
        if case.accepted:
            lines.append(text.one_line(f"{case.case}: inconclusive accuracy accepted: {case.accepted}"))
        lines += [text.one_line(f"{case.case}: note: {note}") for note in case.notes]
    return lines


def deciding(case: CaseResult) -> tuple[str, str]:
    """Return metric and relative difference of the worst comparison; without one, the metric that was printed."""
    if case.accuracy:
        one = max(case.accuracy, key=lambda each: SEVERITY.index(each.verdict))
        return text.number(one.metric), text.percent(one.relative_difference)
    printed = next((step.eval_metric for step in case.steps if step.eval_metric is not None), None)
    return text.number(printed), text.NO_VALUE


def _table(check: CheckResult, console: Console) -> Table:
    from rich.box import ASCII2, SIMPLE_HEAD
    from rich.table import Table

    plain = not console.encoding.lower().startswith("utf")
    table = Table(
        box=ASCII2 if plain else SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for name in ("case", "target", *_PARTS):
        table.add_column(name, overflow="fold")
    for name in ("metric", "difference", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cached")
    for case in check.cases:
        table.add_row(*(_encodable(cell, console) for cell in _row(case)), style=_row_style(case))
    return table


def _row(case: CaseResult) -> list[str]:
    parts = case.parts
    words = [parts[part].value if parts[part] is not Verdict.NONE else text.NO_VALUE for part in _PARTS]
    head = [text.one_line(case.case), text.one_line(case.target) or text.NO_VALUE]
    return [*head, *words, *deciding(case), text.seconds(case.seconds), "cached" if case.cached else ""]


def _row_style(case: CaseResult) -> str:
    return "" if case.verdict is Verdict.PASS else _STYLES[case.verdict]


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(_encodable(line, console), style=style, soft_wrap=True)


def _encodable(line: str, console: Console) -> str:
    """Return the line with what the output's encoding lacks as escapes, so that printing cannot fail."""
    line = line if console.encoding.lower().startswith("utf") else line.replace(text.NO_VALUE, "-").replace("−", "-")
    return line.encode(console.encoding, "backslashreplace").decode(console.encoding)
