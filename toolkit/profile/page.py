"""A profile as one self-contained HTML page, on the same ground as the report of ``teco check``."""

from __future__ import annotations

from pathlib import Path

from model_config.reports import page
from model_config.reports.extra import extra
from toolkit.profile.against import Comparison
from toolkit.profile.record import Profile
from toolkit.profile.roofline import BOTTOM, HEIGHT, roofline
from toolkit.profile.suggest import Suggestion

PAGES = Path(__file__).resolve().parents[1] / "pages"
"""Folder of the toolkit's templates."""


def profile_page(profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None) -> str:
    """Return a profile as one HTML page that makes no request.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    with extra("the HTML report"):
        from jinja2 import ChoiceLoader, FileSystemLoader
    loader = ChoiceLoader([FileSystemLoader(PAGES), FileSystemLoader(page.TEMPLATES)])
    environment = page._environment().overlay(loader=loader)
    style, script = ((page.TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    return environment.get_template("profile.html.j2").render(
        style=style,
        script=script,
        policy=page._policy(),
        profile=profile,
        comparison=comparison,
        suggestion=suggestion,
        roofline=roofline(profile),
        height=HEIGHT,
        bottom=BOTTOM,
    )
