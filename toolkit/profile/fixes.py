"""Table of fixes by bottleneck, with their conditions on the profile and on the flags in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from toolkit.profile.record import Profile
from utils.advice import Advice, InUse, advice

SLOW_LAUNCH, SLOW_MEMORY, SLOW_COMPUTE = "launch", "memory", "compute"
COPIES, LAYOUTS, ISLANDS = "copies", "layouts", "islands"
NOTHING = 1e-9  # simulated seconds that are too few to apply a rule

_MOVING = "channel_shuffle, shuffle_split, gather_conv, transpose_past, transpose_pair, transpose_view"
"""Rewrite rules that remove or merge copies."""

_TURNING = "transpose_past, transpose_pair"  # rewrite rules that remove layout changes


@dataclass(frozen=True)
class Bound:
    """Conditions of a fix."""

    profile: Profile
    saved: Mapping[str, float] | None = None  # seconds saved by the rewrite rules, by operator; ``None``: not tried
    operators: frozenset[str] = frozenset()  # of the bottleneck

    @property
    def untried(self) -> bool:
        """Whether rewrite rules, which are for the card, were not tried."""
        return self.profile.simulated and self.saved is None

    @property
    def saves(self) -> bool:
        """Whether the tried rules save time on these operators."""
        if self.saved is None or not self.profile.simulated:
            return False
        return sum(self.saved.get(name, 0.0) for name in self.operators) > NOTHING

    @property
    def layout(self) -> bool:
        """Whether another layout of the card takes less time."""
        others = [one for one in self.profile.what_if if one.what.startswith("layout ")]
        return any(one.seconds < self.profile.compute for one in others)


_TRY = "teco profile --suggest tries the rewrite rules"
_BELOW = "the rules below"
_OWNER = "report it to the developer of the operator (teco optest writes a test case)"

AIMS = {
    SLOW_LAUNCH: "reduce the number of launches: ",
    SLOW_MEMORY: "reduce memory traffic: ",
    COPIES: "remove or merge the copies: ",
    LAYOUTS: "use one layout and dtype throughout: ",
}
"""Aim of the fixes by bottleneck."""

TABLE: tuple[Advice[Bound], ...] = (
    Advice(SLOW_LAUNCH, f"fuse ({_TRY})", {}, lambda found: found.untried),
    Advice(SLOW_LAUNCH, _BELOW, {}, lambda found: found.saves),
    Advice(SLOW_LAUNCH, "use a larger batch"),
    Advice(SLOW_MEMORY, f"fuse with its neighbours ({_TRY})", {}, lambda found: found.untried),
    Advice(SLOW_MEMORY, _BELOW, {}, lambda found: found.saves),
    Advice(SLOW_MEMORY, "use another layout (layout in the pass file)", {}, lambda found: found.layout),
    Advice(SLOW_MEMORY, "--dtype float16", {"dtype": "float16"}, lambda found: found.profile.simulated),
    Advice(SLOW_MEMORY, "make these tensors smaller"),
    Advice(SLOW_COMPUTE, "replace it by a cheaper equivalent"),
    Advice(SLOW_COMPUTE, _OWNER),
    Advice(COPIES, f"{_TRY} for it ({_MOVING})", {}, lambda found: found.untried),
    Advice(COPIES, _BELOW, {}, lambda found: found.saves),
    Advice(COPIES, "write the model with fewer copies"),
    Advice(LAYOUTS, f"{_TRY} for it ({_TURNING})", {}, lambda found: found.untried),
    Advice(LAYOUTS, _BELOW, {}, lambda found: found.saves),
    Advice(LAYOUTS, "export in that layout"),
    Advice(ISLANDS, "convert them too if accuracy allows (skip_ops, convert_all, normalized in the pass file)"),
)
"""Fixes by bottleneck, the best first; the first two applicable ones are listed."""


def fix_of(
    bottleneck: str, operators: Iterable[str], profile: Profile, saved: Mapping[str, float] | None = None
) -> str:
    """Return the fix of a bottleneck, one of the names above; others as in :class:`Bound`."""
    found = advice(TABLE, bottleneck, InUse({"dtype": profile.dtype}), Bound(profile, saved, frozenset(operators)))
    return AIMS.get(bottleneck, "") + ", or ".join(islice(found, 2))
