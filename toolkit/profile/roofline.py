"""Geometry of the roofline plot (Williams et al., CACM 52(4), 2009) in the HTML page; the template draws it as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass

from toolkit.profile.record import Profile

HEIGHT, BOTTOM = 280.0, 250.0
"""Pixels of the plot, and where its axis of intensities lies; positions across are percentages."""

_MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class Point:
    """One step: position, radius by its share of the time, and what it is in words."""

    x: float
    y: float
    radius: float
    bound: str
    label: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """The plot: steps, the two lines of the roof as (x1, y1, x2, y2), and labelled marks of both axes."""

    points: tuple[Point, ...]
    roof: tuple[tuple[float, float, float, float], ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


def roofline(profile: Profile) -> Roofline | None:
    """Place every step by intensity (operations per byte) and speed; ``None`` where no step computes anything."""
    steps = [step for step in profile.steps if step.flops > 0 and step.bytes > 0 and step.seconds > 0]
    if not steps or not profile.peak_flops or not profile.bandwidth:
        return None
    ridge = profile.peak_flops / profile.bandwidth
    low, high = _decades([ridge, *(step.intensity for step in steps)])
    slow, fast = _decades([profile.peak_flops, *(step.flops / step.seconds for step in steps)])

    def x(intensity: float) -> float:
        return round(_MARGIN * 2 + (100 - 3 * _MARGIN) * (math.log10(intensity) - low) / (high - low), 2)

    def y(speed: float) -> float:
        return round(BOTTOM * (1 - (math.log10(speed) - slow) / (fast - slow)), 1)

    # Where the sloping line would leave the plot below, it begins at the axis instead.
    start = max(10**low, 10**slow / profile.bandwidth)
    sloping = (x(start), y(start * profile.bandwidth), x(ridge), y(profile.peak_flops))
    flat = (x(ridge), y(profile.peak_flops), x(10**high), y(profile.peak_flops))
    points = tuple(
        Point(
            x(step.intensity),
            y(step.flops / step.seconds),
            round(3 + 12 * math.sqrt(profile.share(step.seconds)), 1),
            step.bound,
            f"{step.name} ({step.op_type}): {step.intensity:.3g} FLOP/byte, {step.roof_share:.0%} of the roof",
        )
        for step in sorted(steps, key=lambda step: -step.seconds)
    )
    across = tuple((x(10.0**i), f"{10.0**i:g}") for i in range(low, high + 1))
    up = tuple((y(10.0**i), f"{10.0 ** (i - 9):g}") for i in range(slow, fast + 1))
    return Roofline(points, (sloping, flat), across, up)


def _decades(values: list[float]) -> tuple[int, int]:
    """Return the whole powers of ten around values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
