"""A training's profile as one self-contained HTML page, in the frame that all pages have."""

from __future__ import annotations

from collections.abc import Sequence

from tecoinfer_modelzoo.text import shortened
from toolkit.output import PAGES
from toolkit.training.profile.bottlenecks import Bottleneck
from toolkit.training.profile.comparison import Comparison
from toolkit.training.profile.record import Profile
from toolkit.training.profile.report import lead, notes, op_rows

_LONGEST = 240
"""Characters of an operator's operands: lists of tensors have hundreds, which the JSON has in full."""

HOST_LAYERS = ("framework", "runtime", "launch")
DEVICE_PARTS = ("compute", "copies", "idle")


def training_page(profile: Profile, found: Sequence[Bottleneck], comparison: Comparison | None = None) -> str:
    """Return a profile as one HTML page that makes no request.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    return PAGES.render(
        "training_profile.html.j2",
        profile=profile,
        lead=lead(profile, found),
        notes=notes(profile),
        found=found,
        comparison=comparison,
        operators=[{**row, "inputs": shortened(row["inputs"], _LONGEST)} for row in op_rows(profile)],
        host_layers=HOST_LAYERS,
        device_parts=DEVICE_PARTS,
    )
