"""A profile as one self-contained HTML page, on the same ground as the report of ``teco check``."""

from __future__ import annotations

from pathlib import Path

from model_config.reports.page import render
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
    return render(
        "profile.html.j2",
        PAGES,
        profile=profile,
        comparison=comparison,
        suggestion=suggestion,
        roofline=roofline(profile),
        height=HEIGHT,
        bottom=BOTTOM,
    )
