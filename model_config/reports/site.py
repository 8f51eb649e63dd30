"""One page about the whole zoo, generated from the scorecards and the stored answers of the models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_config.reports.page import PAGES
from model_config.reports.scored import find_models
from model_config.reports.speed_chart import BOTTOM, HEIGHT, TOP
from model_config.reports.text import write_text
from model_config.reports.zoo_cards import split
from model_config.results import CaseResult, CheckResult


def build_site(root: Path, out: Path, checks: Sequence[CheckResult] = ()) -> None:
    """Write one self-contained HTML page about every model below a root.

    Args:
        checks: results to show with their models, including logs and images; the last result of each case is used.

    Raises:
        ConfigError: a scorecard, a stored answer or a table of licences cannot be read, the page cannot be written, or
            jinja2 or Pillow is not installed.
    """
    models = find_models(root)
    latest = {case.case: case for check in checks for case in check.cases}
    cases: dict[str, list[CaseResult]] = {model.path: [] for model in models}
    for case in latest.values():
        cases.setdefault(case.run_dir.removeprefix("TecoInference/").rstrip("/"), []).append(case)
    domains, untrained = split(root, models)
    detailed = [model for model in models if model.date or cases[model.path]]
    commits = {model.path: model.commit for model in models if not model.commit.endswith("-dirty")}
    values = {"domains": domains, "untrained": untrained, "detailed": detailed, "cases": cases, "commits": commits}
    values["by_path"] = {card.model.path: card for domain in domains for card in domain.cards}
    sizes = {"top": TOP, "bottom": BOTTOM, "height": HEIGHT}
    write_text(PAGES.render("site.html.j2", models=models, **values, **sizes), out)
