"""The result of a check as one self-contained HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from model_config.reports import looks, text
from model_config.reports.described import unlinked
from model_config.reports.plots import difference_plot, ratio_plot, tail_plot
from model_config.reports.terminal import deciding
from model_config.reports.thumbnails import Thumbnail, thumbnails
from model_config.results import CaseResult, CheckResult, Drawn, StepResult, Verdict
from utils.pages.page import Pages

_LOG_BYTES = 65_536
"""Maximum bytes of each log's end in a page."""
_TAIL = 12
"""Lines of a log that are shown before it is expanded."""
_IMAGES = 6
"""Maximum number of images of a case, taken from its steps in turn."""
_REASONS = 5
"""Maximum number of reasons of a case at the top of the page."""
_SIDE = 320
"""Maximum pixels of the longer side of an image of a prediction that differs."""


def html_page(check: CheckResult) -> str:
    """Return a check as one HTML page with embedded styles, script, logs, plots and images.

    The page makes no requests, and its content security policy allows only its own script, whatever text the logs and
    names contain. Logs and images are read from the paths in the check; missing files are left out.

    Raises:
        ConfigError: jinja2 or Pillow is not installed.
    """
    return PAGES.render("check.html.j2", check=check)


def worst_first(check: CheckResult) -> list[CaseResult]:
    """Return the cases, the worst verdicts first, cases of the same verdict in their order."""
    return sorted(check.cases, key=lambda case: looks.case_look(case).rank, reverse=True)


def failing(check: CheckResult) -> list[CaseResult]:
    """Return the cases that prevent a pass: failed ones first, then inconclusive ones."""
    return [case for case in worst_first(check) if case.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)]


def _failed_words(cases: Sequence[CaseResult]) -> str:
    """Return the number of failed and of undecided cases."""
    counts = [sum(case.verdict is verdict for case in cases) for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)]
    return ", ".join(f"{count} {word}" for count, word in zip(counts, ("failed", "undecided"), strict=True) if count)


def case_logs(step: StepResult) -> list[tuple[str, text.Log]]:
    """Return the non-empty logs of a step with their names, the more informative one first."""
    logs = [
        (name, text.read_log(path, _LOG_BYTES)) for name, path in (("stdout", step.stdout), ("stderr", step.stderr))
    ]
    return [(name, log) for name, log in (logs if step.passed else reversed(logs)) if log.text]


def case_images(case: CaseResult) -> list[Thumbnail]:
    """Return up to six images of a case: the first of every step, then the second ones, and so on."""
    most = max((len(step.images) for step in case.steps), default=0)
    turns = (step.images[turn] for turn in range(most) for step in case.steps if turn < len(step.images))
    return thumbnails(list(dict.fromkeys(turns))[:_IMAGES])


class Pair(NamedTuple):
    """A sample with both answers; an image is ``None`` if the task draws none, or if it cannot be read."""

    sample: Drawn
    target: Thumbnail | None
    baseline: Thumbnail | None


class Pairs(NamedTuple):
    """The drawn samples of a case whose two answers look different, and the number of those that look alike."""

    different: list[Pair]
    alike: int


def drawn_pairs(case: CaseResult) -> Pairs:
    """Return the samples of a case whose predictions differ, with both answers."""
    pairs = [Pair(one, _small(one.target_image), _small(one.baseline_image)) for one in case.drawn]
    looks = [(_looks(pair.sample.target, pair.target), _looks(pair.sample.baseline, pair.baseline)) for pair in pairs]
    different = [pair for pair, (ours, theirs) in zip(pairs, looks, strict=True) if ours != theirs]
    return Pairs(different, len(pairs) - len(different))


def _looks(text: str, image: Thumbnail | None) -> tuple[str, str]:
    return text, "" if image is None else image.uri


def _small(path: Path | None) -> Thumbnail | None:
    found = thumbnails([] if path is None else [path], _SIDE)
    return found[0] if found and found[0].uri else None


def _tail(log: text.Log) -> str:
    return "\n".join(log.text.split("\n")[-_TAIL:])


def _is_long(log: text.Log) -> bool:
    return log.left_out > 0 or log.text.count("\n") >= _TAIL


def _command(words: tuple[str, ...]) -> str:
    return shlex.join(words)


_FILTERS: Mapping[str, Any] = {
    "bucket": text.bucket,
    "command": _command,
    "domain": text.domain_of,
    "figure": text.figure,
    "is_long": _is_long,
    "log_tail": _tail,
    "look": looks.look_of,
    "unlinked": unlinked,
    "case_look": looks.case_look,
}
_FUNCTIONS: Mapping[str, Any] = {
    "Verdict": Verdict,
    "case_logs": case_logs,
    "case_look": looks.case_look,
    "case_images": case_images,
    "check_look": looks.check_look,
    "counts_line": text.counts_line,
    "deciding": deciding,
    "difference_plot": difference_plot,
    "drawn_pairs": drawn_pairs,
    "exit_line": text.exit_line,
    "failed_words": _failed_words,
    "failing": failing,
    "most_reasons": _REASONS,
    "parts_look": looks.parts_look,
    "ratio_plot": ratio_plot,
    "tail_plot": tail_plot,
    "worst_first": worst_first,
}
PAGES = Pages(Path(__file__).resolve().parent / "templates", _FILTERS, _FUNCTIONS)
"""Templates of the pages of a check and of the zoo."""
