"""General checks of the result of a command; see `docs/explanation/reliability.md`."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from tests.fuzz.case import Case, Outcome

LONGEST_LINE = 1500
"""Maximum readable length of a line in characters."""

RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
"""Terminal control and bidirectional characters in the output."""

_UNFORESEEN = re.compile(r"error: ([^\n]*); correct the code there, or report it: TECO_TRACEBACK=1")
"""Marker of an unexpected error (:mod:`utils.pipeline.report.unforeseen`)."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_ERROR = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Group)\w*)(?::|$)", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """A finding: its class in one word, and details."""

    word: str
    detail: str

    @property
    def key(self) -> str:
        """Key of the cause, equal for cases with the same cause."""
        if self.word == "raw":
            return f"raw: {self.detail.partition(':')[0]}"
        return f"{self.word}: {re.sub(r'[0-9]+', '#', self.detail)[:160]}"


def judge(case: Case, outcome: Outcome, limit: float) -> Finding | None:
    """Return the finding of an outcome, or ``None``.

    Args:
        limit: seconds after which a command hangs.
    """
    both = outcome.out + "\n" + outcome.err
    if outcome.code is None:
        return None if case.excused(outcome) else Finding("hang", f"not ended after {limit:g} s")
    if outcome.left:
        return Finding("left", f"processes left running: {'; '.join(outcome.left)[:300]}")
    if outcome.code < 0:
        name = signal.Signals(-outcome.code).name
        return None if case.excused(outcome) else Finding("crash", f"ended by {name}")
    if "Traceback (most recent call last)" in both:
        return Finding("traceback", where(both))
    if found := _UNFORESEEN.search(both):
        return Finding("unforeseen", found[1])
    if outcome.code not in case.codes:
        return Finding("code", f"exit code {outcome.code}, not of {sorted(case.codes)}")
    if outcome.code == 2 and not outcome.err.strip():
        return Finding("silent", "exit code 2 without a line on stderr")
    if found := RAW.search(re.sub(r"\r(?=.|\n)", "", both)):
        around = both[max(0, found.start() - 40) : found.end() + 10]
        return Finding("raw", f"character {found.group()!r} is printed as it is: ...{around!r}")
    if re.search(r"^eval_metric 9\.9", both, re.MULTILINE):  # out of tests.fuzz.names: no run of the cases has it
        return Finding("forged", "a line that a name or a label holds is printed as one of ours")
    longest = max(both.splitlines(), key=len, default="")
    if len(longest) > LONGEST_LINE:
        return Finding("long", f"a line of {len(longest)} characters: {longest[:100]}...")
    if outcome.memory > case.most_memory:
        return Finding("memory", f"held {outcome.memory / 2**20:.0f} MB")
    wrong = case.judge(outcome)
    return Finding("wrong", wrong) if wrong else None


def where(text: str) -> str:
    """Return the last frame of a traceback in the zoo and the error, as key of the cause."""
    last = text[text.rindex("Traceback (most recent call last)") :]
    frames = [found.groups() for found in _FRAME.finditer(last)]
    ours = [frame for frame in frames if "site-packages" not in frame[0] and "/lib/python" not in frame[0]]
    file, line, name = (ours or frames or [("?", "0", "?")])[-1]
    error = _ERROR.search(last)
    return f"{error.group(1) if error else '?'} in {name} ({'/'.join(file.split('/')[-3:])}:{line})"
