"""The result of a check as one self-contained HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_config.reports import looks, text
from model_config.reports.described import unlinked
from model_config.reports.plots import difference_plot, ratio_plot, tail_plot
from model_config.reports.terminal import deciding
from model_config.reports.thumbnails import Thumbnail, thumbnails
from model_config.results import CaseResult, CheckResult, StepResult, Verdict
from utils.pages.page import Pages

_LOG_BYTES = 65_536
"""Maximum bytes of each log's end in a page."""
_TAIL = 12
"""Lines of a log that are shown before it is expanded."""
_IMAGES = 6
"""Maximum number of images of a case, taken from its steps in turn."""


def html_page(check: CheckResult) -> str:
    """Return a check as one HTML page with embedded styles, script, logs, plots and images.

    The page makes no requests, and its content security policy allows only its own script, whatever text the logs and
    names contain. Logs and images are read from the paths in the check; missing files are left out.

    Raises:
        ConfigError: jinja2 or Pillow is not installed.
    """
    return PAGES.render("check.html.j2", check=check)


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
    "exit_line": text.exit_line,
    "parts_look": looks.parts_look,
    "ratio_plot": ratio_plot,
    "tail_plot": tail_plot,
}
PAGES = Pages(Path(__file__).resolve().parent / "templates", _FILTERS, _FUNCTIONS)
"""Templates of the pages of a check and of the zoo."""
