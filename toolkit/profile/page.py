"""A profile as one self-contained HTML page, on the same ground as the report of ``teco check``."""

from __future__ import annotations

from toolkit.output import PAGES
from toolkit.profile.comparison import Comparison
from toolkit.profile.record import Profile
from toolkit.profile.roofline import BOTTOM, HEIGHT, TOP, roofline
from toolkit.profile.suggest import Suggestion


def profile_page(profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None) -> str:
    """Return a profile as one HTML page that makes no request.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    return PAGES.render(
        "profile.html.j2",
        profile=profile,
        comparison=comparison,
        suggestion=suggestion,
        roofline=roofline(profile),
        height=HEIGHT,
        top=TOP,
        bottom=BOTTOM,
    )
