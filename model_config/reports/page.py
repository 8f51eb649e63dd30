"""The result of a check as one HTML page that needs nothing else, and the ground all such pages stand on."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_config.reports import text
from model_config.reports.extra import extra
from model_config.reports.pictures import Picture, thumbnails
from model_config.reports.plots import difference_plot, ratio_plot
from model_config.reports.terminal import deciding
from model_config.results import SEVERITY, CaseResult, CheckResult, StepResult, Verdict

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).resolve().parent / "templates"
_LOG_BYTES = 65_536
"""Bytes of each log's end that go into a page."""
_TAIL = 12
"""Lines of a log that are shown before one asks for more."""
_PICTURES = 6
"""Pictures of a case; of each step, the first ones in turn."""
_SLUGS = {Verdict.NONE: "none", Verdict.PASS: "pass", Verdict.INCONCLUSIVE: "open", Verdict.FAIL: "fail"}


def html_page(check: CheckResult) -> str:
    """Return a check as one HTML page, with everything in it: styles, script, logs, plots and pictures.

    The page makes no request, and a content security policy keeps it so: it runs no script but its own, whatever the
    check found in logs and names. Logs and pictures are read from the paths in the check; what is gone is left out.

    Raises:
        ConfigError: jinja2 or Pillow is not installed.
    """
    return render("check.html.j2", check=check)


def render(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Return a template, filled in; all values are cleaned and escaped.

    Args:
        template: name of its file.
        folder: where to look for it before the templates of this package, which it may build on.
        values: what it is filled in with.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    style, script = (_asset(name) for name in ("style.css", "page.js"))
    return _environment(folder).get_template(template).render(style=style, script=script, policy=_policy(), **values)


def case_logs(step: StepResult) -> list[tuple[str, text.Log]]:
    """Return the logs of a step that have anything in them, with their names; the telling one first."""
    logs = [
        (name, text.read_log(path, _LOG_BYTES)) for name, path in (("stdout", step.stdout), ("stderr", step.stderr))
    ]
    return [(name, log) for name, log in (logs if step.passed else reversed(logs)) if log.text]


def case_pictures(case: CaseResult) -> list[Picture]:
    """Return the pictures of a case: the first of every step, then the second ones, up to six."""
    most = max((len(step.pictures) for step in case.steps), default=0)
    turns = (step.pictures[turn] for turn in range(most) for step in case.steps if turn < len(step.pictures))
    return thumbnails(list(dict.fromkeys(turns))[:_PICTURES])


@cache
def _environment(folder: Path) -> Environment:
    with extra("the HTML report"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    made = Environment(
        autoescape=True,
        finalize=_finalize,
        loader=FileSystemLoader([folder, TEMPLATES]),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(_FILTERS)
    made.globals.update(_GLOBALS)
    return made


def _finalize(value: Any) -> Any:
    """Clean every plain text that goes into a page; what templates have marked as safe is theirs."""
    return text.clean(value) if type(value) is str else value


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _policy() -> str:
    """Return the content security policy: no network, and no script or style but the two of the page."""

    def digest(name: str) -> str:
        return base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest('style.css')}'; "
        f"script-src 'sha256-{digest('page.js')}'; base-uri 'none'; form-action 'none'"
    )


def _slug(verdict: Verdict) -> str:
    return _SLUGS[verdict]


def _anchor(name: str) -> str:
    """Return a text that can be an ``id``: other characters become hexadecimal, so two names never meet."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name)


def _breakable(value: str, longest: int = 24) -> Markup:
    """Return a text whose words beyond ``longest`` may go on in a new line after ``_ . / : -``, not just anywhere."""
    from markupsafe import Markup, escape

    words = re.split(r"(\s+)", text.clean(value))
    pieces = ([word] if len(word) <= longest else re.split(r"(?<=[_./:-])(?=\w)", word) for word in words)
    return Markup("").join(Markup("<wbr>").join(map(escape, parts)) for parts in pieces)


def _tail(log: text.Log) -> str:
    return "\n".join(log.text.split("\n")[-_TAIL:])


def _is_long(log: text.Log) -> bool:
    return log.left_out > 0 or log.text.count("\n") >= _TAIL


def _command(words: tuple[str, ...]) -> str:
    return shlex.join(words)


def _severity(verdict: Verdict) -> int:
    return SEVERITY.index(verdict)


def _choices(values: Iterator[str]) -> list[str]:
    return sorted({value for value in values if value})


_FILTERS: Mapping[str, Any] = {
    "anchor": _anchor,
    "breakable": _breakable,
    "choices": _choices,
    "bucket": text.bucket,
    "command": _command,
    "domain": text.domain_of,
    "facts": text.facts,
    "figure": text.figure,
    "is_long": _is_long,
    "log_tail": _tail,
    "memory": text.memory,
    "number": text.number,
    "percent": text.percent,
    "seconds": text.seconds,
    "severity": _severity,
    "share": text.share,
    "slug": _slug,
}
_GLOBALS: Mapping[str, Any] = {
    "Verdict": Verdict,
    "case_logs": case_logs,
    "case_pictures": case_pictures,
    "counts_line": text.counts_line,
    "deciding": deciding,
    "difference_plot": difference_plot,
    "exit_line": text.exit_line,
    "plural": text.plural,
    "ratio_plot": ratio_plot,
    "symbols": text.SYMBOLS,
}
