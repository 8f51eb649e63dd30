"""Display of verdicts in reports; a case that passed on a part of its data has its own look."""

from __future__ import annotations

from typing import NamedTuple

from model_config.results import CaseResult, CheckResult, Verdict


class Look(NamedTuple):
    """Display of a verdict.

    Attributes:
        word: in tables. sign: shown with it on a page, so that the meaning does not depend on colour.
        emoji: the sign in Markdown. style: on a terminal, in rich's syntax. slug: part of a page's CSS class.
        rank: sort position, the best first.
    """

    word: str
    sign: str
    emoji: str
    style: str
    slug: str
    rank: int


PARTIAL = Look("PASS (part)", "≈", "🟡", "yellow", "partial", 2)
"""Look of a pass on a part of the data."""

_LOOKS = {
    Verdict.NONE: Look(Verdict.NONE.value, "–", "➖", "dim", "none", 0),
    Verdict.PASS: Look(Verdict.PASS.value, "✓", "✅", "green", "pass", 1),
    Verdict.INCONCLUSIVE: Look(Verdict.INCONCLUSIVE.value, "?", "❔", "yellow", "open", 3),
    Verdict.FAIL: Look(Verdict.FAIL.value, "✗", "❌", "bold red", "fail", 4),
}


def look_of(verdict: Verdict) -> Look:
    """Return the look of a verdict."""
    return _LOOKS[verdict]


def parts_look(case: CaseResult) -> dict[str, Look]:
    """Return the looks of structure, function, accuracy and speed."""
    looks = {part: look_of(verdict) for part, verdict in case.parts.items()}
    return looks | {"accuracy": PARTIAL} if case.partial and case.parts["accuracy"] is Verdict.PASS else looks


def case_look(case: CaseResult) -> Look:
    """Return the look of a case: the worst of its parts."""
    return max(parts_look(case).values(), key=lambda look: look.rank)


def check_look(check: CheckResult) -> Look:
    """Return the look of a whole check: partial if it passes and a case evaluated a part of its data."""
    if check.verdict is Verdict.PASS and PARTIAL in map(case_look, check.cases):
        return PARTIAL
    return look_of(check.verdict)


def count_looks(check: CheckResult) -> dict[str, int]:
    """Return the number of cases with each look, by its word, the worst first."""
    looks = [case_look(case) for case in check.cases]
    every = sorted({*_LOOKS.values(), PARTIAL}, key=lambda look: look.rank, reverse=True)
    return {look.word: looks.count(look) for look in every}
