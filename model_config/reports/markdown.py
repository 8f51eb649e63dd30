"""The result of a check as a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from model_config.reports import text
from model_config.reports.looks import PARTIAL, case_look, check_look, parts_look
from model_config.reports.terminal import comparisons, deciding
from model_config.results import CaseResult, CheckResult, StepResult, Verdict
from tecoinfer_modelzoo.formatting import clean_line, plural, seconds

_T = TypeVar("_T")

LIMIT = 60_000
"""Maximum number of characters; GitHub rejects comments of more than 65 536."""

_TABLE_SHARE = LIMIT // 2
_BLOCK = LIMIT // 3
_REASON = 2_000
_LOG_LINES, _LOG_CHARACTERS, _LOG_BYTES = 30, 3_000, 65_536
_CUT = " [...]"


def markdown(check: CheckResult) -> str:
    """Return a check as GitHub Markdown of at most :data:`LIMIT` characters, the worst cases first.

    All text from the check is escaped, so that it cannot break the table, insert HTML or mention users.
    """
    cases = sorted(check.cases, key=lambda case: case_look(case).rank, reverse=True)
    head = f"## {check_look(check).emoji} {escape(text.headline(check))}\n\n{escape(_summary(check))}\n"
    if check.problems:
        listed = _fitting(check.problems, _listed, LIMIT // 4, "problem")
        head += f"\n### Outside the cases\n\n{listed}"
    if cases:
        titles = "case | target | structure | function | accuracy | speed | metric | difference | time"
        head += f"\n| | {titles} |\n|---|---|---|---|---|---|---|--:|--:|--:|\n"
        head += _fitting(cases, _row, _TABLE_SHARE, "case")
    partial = [case for case in cases if case_look(case) is PARTIAL]
    if partial:
        head += "\n" + _fitting(partial, _partial, LIMIT // 8, "case")
    bad = [case for case in cases if case.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)]
    head += _fitting(bad, _block, LIMIT - len(head) - 200, "failing case")
    return head + _passed(cases, min(LIMIT // 8, LIMIT - len(head) - 400))


def _passed(cases: Sequence[CaseResult], room: int) -> str:
    """Return the comparisons of the cases that passed, folded."""
    lines = [f"{case.case}: {line}" for case in cases if case.verdict is Verdict.PASS for line in comparisons(case)]
    if not lines or room < 0:
        return ""
    listed = _fitting(lines, _listed, room, "comparison")
    return f"\n<details><summary>Accuracy of the cases that passed</summary>\n\n{listed}\n</details>\n"


def escape(value: str) -> str:
    """Return any text as one line of Markdown that shows it literally.

    A zero-width space after ``@`` and ``#`` keeps GitHub from linking people and issues.
    """
    line = clean_line(value)
    line = line if len(line) <= _REASON else line[:_REASON] + _CUT
    line = html.escape(line, quote=False)
    line = re.sub(r"([\\`*_\[\]~|])", r"\\\1", line)
    line = _unlinked(line)
    return re.sub(r"^(\d*)([-+#.)=])", r"\1\\\2", line)


def _unlinked(line: str) -> str:
    return re.sub(r"([@#])(?=\w)|(?<=\w)(:)(?=//)", "\\g<0>\u200b", line)


def _summary(check: CheckResult) -> str:
    parts = [f"commit {check.commit}" if check.commit else "", check.date, f"took {seconds(check.seconds)}"]
    return " · ".join(part for part in (*parts, text.exit_line(check)) if part)


def _fitting(items: Sequence[_T], write: Callable[[_T], str], room: int, what: str) -> str:
    """Return the first items, formatted, within ``room`` characters, and the number of omitted ones."""
    kept = ""
    for index, item in enumerate(items):
        piece = write(item)
        if len(kept) + len(piece) > room:
            more = plural(len(items) - index, f"more {what}")
            return f"{kept}\n_{more} left out: too long for a comment._\n"
        kept += piece
    return kept


def _listed(line: str) -> str:
    return f"- {escape(line)}\n"


def _row(case: CaseResult) -> str:
    words = [f"{look.emoji} {look.word}" for look in parts_look(case).values()]
    metric, difference = deciding(case)
    time = seconds(case.seconds) + (" (cached)" if case.cached else "")
    cells = [case_look(case).emoji, escape(case.case), escape(case.target), *words, metric, difference, time]
    return f"| {' | '.join(cells)} |\n"


def _partial(case: CaseResult) -> str:
    return f"- {PARTIAL.emoji} {escape(case.case)}: evaluated on {escape(case.partial)}\n"


def _block(case: CaseResult) -> str:
    summary = _unlinked(html.escape(clean_line(f"{case.case}: {case.verdict.value}"), quote=False))
    lines = _fitting(case.reasons, _listed, _BLOCK // 2, "reason")
    if case.partial:
        lines += f"- evaluated on {escape(case.partial)}\n"
    failed = [step for step in case.steps if not step.passed]
    return (
        f"\n<details><summary>{case_look(case).emoji} {summary}</summary>\n\n"
        f"{lines}{_fitting(failed, _log, _BLOCK // 2, 'log')}\n</details>\n"
    )


def _log(step: StepResult) -> str:
    log = next((log for path in (step.stderr, step.stdout) if (log := text.read_log(path, _LOG_BYTES)).text), None)
    if log is None:
        return ""
    end = log.tail(_LOG_LINES, _LOG_CHARACTERS)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", end)), 3)
    return f"\nEnd of the log of {escape(step.step)}:\n\n{fence}text\n{end}\n{fence}\n"
