"""The result of a check as text for a terminal or pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from model_config.reports import text
from model_config.reports.looks import case_look, check_look, look_of, parts_look
from model_config.results import SEVERITY, CaseResult, CheckResult, Verdict
from tecoinfer_modelzoo.formatting import NO_VALUE, clean_line, number, percent, seconds
from tecoinfer_modelzoo.terminal import encodable, new_table, open_console, print_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_RANDOM = "random weights"
"""Start of the note of a case with random weights."""

_PARTS = ("structure", "function", "accuracy", "speed")


def print_table(check: CheckResult, file: TextIO | None = None) -> None:
    """Print one row per case, then its comparisons and the reasons of other parts that failed, then the verdict.

    Args:
        file: output file; ``None`` is standard output. Colours and the terminal's width are used only on a terminal.

    Raises:
        ConfigError: rich is not installed.
    """
    console = open_console(file)
    if check.cases:
        console.print(_table(check, console))
    for line in reason_lines(check):
        print_line(console, line)
    if check.logs.parts:
        print_line(console, f"logs: {check.logs}")
    print_line(console, f"{text.headline(check)}; {text.exit_line(check)}", "bold " + check_look(check).style)


def reason_lines(check: CheckResult) -> list[str]:
    """Return a line for every configuration problem, every comparison, and every other part that did not pass."""
    lines = [clean_line(problem) for problem in check.problems]
    for case in check.cases:
        lines += [clean_line(f"{case.case}: {line}") for line in comparisons(case)]
        known = [one.reason for one in case.accuracy]
        lines += [clean_line(f"{case.case}: {reason}") for reason in case.reasons if reason not in known]
        if case.partial:
            lines.append(clean_line(f"{case.case}: evaluated on {case.partial}"))
        lines += [clean_line(f"{case.case}: note: {note}") for note in case.notes]
    return lines


def comparisons(case: CaseResult) -> list[str]:
    """Return a line for every comparison of a metric: its verdict, then the reason."""
    return [f"{one.verdict.value}: {one.reason}" for one in case.accuracy if one.reason]


def deciding(case: CaseResult) -> tuple[str, str]:
    """Return metric and relative difference of the worst comparison; without one, the printed metric.

    Both are empty for a model with random weights, whose metric is meaningless.
    """
    if any(note.startswith(_RANDOM) for note in case.notes):
        return _RANDOM, NO_VALUE
    if case.accuracy:
        one = max(case.accuracy, key=lambda each: SEVERITY.index(each.verdict))
        return number(one.metric), percent(one.relative_difference)
    printed = next((step.eval_metric for step in case.steps if step.eval_metric is not None), None)
    return number(printed), NO_VALUE


def _table(check: CheckResult, console: Console) -> Table:
    table = new_table(console)
    for name in ("case", "target", *_PARTS):
        table.add_column(name, overflow="fold")
    for name in ("metric", "difference", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cached")
    for case in check.cases:
        table.add_row(*(encodable(cell, console) for cell in _row(case)), style=_row_style(case))
    return table


def _row(case: CaseResult) -> list[str]:
    parts = parts_look(case)
    words = [parts[part].word if case.parts[part] is not Verdict.NONE else NO_VALUE for part in _PARTS]
    head = [clean_line(case.case), clean_line(case.target) or NO_VALUE]
    return [*head, *words, *deciding(case), seconds(case.seconds), "cached" if case.cached else ""]


def _row_style(case: CaseResult) -> str:
    look = case_look(case)
    return "" if look == look_of(Verdict.PASS) else look.style
