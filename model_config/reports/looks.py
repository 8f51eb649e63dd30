"""How verdicts look in reports: one table for all of them, with a look of its own for what is accepted.

A case whose samples are too few to prove its accuracy may pass by ``accept_inconclusive``. Its verdict is PASS, and
the JSON says so; but people must see at once that nothing was proven.
"""

from __future__ import annotations

from typing import NamedTuple

from model_config.results import CaseResult, CheckResult, Verdict, worst


class Look(NamedTuple):
    """What stands for a verdict.

    Attributes:
        word: in tables. sign: beside it on a page, so that colour alone says nothing.
        emoji: the sign in Markdown. style: on a terminal, as rich names it. slug: part of a page's CSS class.
        rank: its place in order, the best first.
    """

    word: str
    sign: str
    emoji: str
    style: str
    slug: str
    rank: int


ACCEPTED = Look("PASS (accepted)", "≈", "🟡", "yellow", "accepted", 2)
"""Passed, though an accuracy was not proven."""

_LOOKS = {
    Verdict.NONE: Look(Verdict.NONE.value, "–", "➖", "dim", "none", 0),
    Verdict.PASS: Look(Verdict.PASS.value, "✓", "✅", "green", "pass", 1),
    Verdict.INCONCLUSIVE: Look(Verdict.INCONCLUSIVE.value, "?", "❔", "yellow", "open", 3),
    Verdict.FAIL: Look(Verdict.FAIL.value, "✗", "❌", "bold red", "fail", 4),
}


def look_of(verdict: Verdict) -> Look:
    """Return the look of a verdict that nobody had to accept."""
    return _LOOKS[verdict]


def parts_look(case: CaseResult) -> dict[str, Look]:
    """Return the looks of structure, function, accuracy and speed."""
    looks = {part: look_of(verdict) for part, verdict in case.parts.items()}
    return looks | {"accuracy": ACCEPTED} if _accepted(case) else looks


def case_look(case: CaseResult) -> Look:
    """Return the look of a case: the worst of its parts."""
    return max(parts_look(case).values(), key=lambda look: look.rank)


def judged_look(verdict: Verdict, accepted: str) -> Look:
    """Return the look of one comparison.

    Args:
        verdict: the comparison's own.
        accepted: why it is accepted where it is inconclusive; empty where it is not.
    """
    if verdict is Verdict.INCONCLUSIVE and accepted:
        return ACCEPTED._replace(word=f"{verdict.value} (accepted)")
    return look_of(verdict)


def check_look(check: CheckResult) -> Look:
    """Return the look of a whole check: accepted where it passes, but not every case by itself."""
    if check.verdict is Verdict.PASS and ACCEPTED in map(case_look, check.cases):
        return ACCEPTED
    return look_of(check.verdict)


def count_looks(check: CheckResult) -> dict[str, int]:
    """Return how many cases have each look, by its word, the worst first."""
    looks = [case_look(case) for case in check.cases]
    every = sorted({*_LOOKS.values(), ACCEPTED}, key=lambda look: look.rank, reverse=True)
    return {look.word: looks.count(look) for look in every}


def _accepted(case: CaseResult) -> bool:
    return bool(case.accepted) and worst([one.verdict for one in case.accuracy]) is Verdict.INCONCLUSIVE
