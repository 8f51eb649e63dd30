"""HTML page of a profile, with the geometry of its roofline plot (Williams et al., CACM 52(4), 2009)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from toolkit.output import PAGES
from toolkit.profile.comparison import Comparison
from toolkit.profile.record import Profile
from toolkit.profile.suggest import Suggestion

HEIGHT, TOP, BOTTOM = 384.0, 36.0, 320.0
"""Height of the plot, and top and bottom of the speed axis in pixels; x positions are percentages."""

_LABELS = 8  # largest number of labels of an axis; other grid lines have none


@dataclass(frozen=True, slots=True)
class Point:
    """One step: position, radius by its share of the time, and description."""

    x: float
    y: float
    radius: float
    bound: str
    label: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """The plot: steps, two lines of the roof as (x1, y1, x2, y2), its peak as text, and marks of both axes.

    Marks are powers of ten: operations per byte ``across``, TFLOP/s ``up``; some have an empty label.
    """

    points: tuple[Point, ...]
    roof: tuple[tuple[float, float, float, float], ...]
    peak: str
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


def roofline(profile: Profile) -> Roofline | None:
    """Return the plot of steps by intensity (operations per byte) and speed; ``None`` without operations."""
    steps = [step for step in profile.steps if step.flops > 0 and step.bytes > 0 and step.seconds > 0]
    if not steps or not profile.peak_flops or not profile.bandwidth:
        return None
    ridge = profile.peak_flops / profile.bandwidth
    low, high = _decades([ridge, *(step.intensity for step in steps)])
    slow, fast = _decades([profile.peak_flops, *(step.flops / step.seconds for step in steps)])

    def x(intensity: float) -> float:
        return round(100 * (math.log10(intensity) - low) / (high - low), 2)

    def y(speed: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (math.log10(speed) - slow) / (fast - slow), 1)

    # The sloping line is clipped at the bottom axis.
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
    across = tuple((x(10.0**i), label) for i, label in _marks(low, high, 0))
    up = tuple((y(10.0**i), label) for i, label in _marks(slow, fast, 12))
    return Roofline(points, (sloping, flat), f"{profile.peak_flops / 1e12:.3g} TFLOP/s", across, up)


def _decades(values: list[float]) -> tuple[int, int]:
    """Return the exponents of the powers of ten that enclose the values, at least one decade."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return (low, high) if low < high else (low - 1, high + 1)


def _marks(low: int, high: int, unit: int) -> list[tuple[int, str]]:
    """Return every power of ten with its label in units of ten to the ``unit``; labels are thinned out."""
    stride = -(-(high - low + 1) // _LABELS)
    return [(i, "" if (i - low) % stride else _power(i - unit)) for i in range(low, high + 1)]


def _power(exponent: int) -> str:
    """Return a power of ten as a short number such as ``0.001``, else as ``10⁻⁵``."""
    if -3 <= exponent <= 4:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def profile_page(profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None) -> str:
    """Return a profile as one HTML page that makes no request; raise ConfigError if jinja2 is not installed."""
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
