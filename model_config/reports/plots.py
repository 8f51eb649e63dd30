"""Geometry of the plots in the HTML pages; the templates draw it as SVG.

All positions are percentages of the plot's width, so that a plot scales while its text keeps its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from model_config.results import Accuracy, Speed
from tecoinfer_modelzoo.formatting import clean_line, percent, share

_MARGIN = 6.0
"""Percent of free space at both ends, for the outermost labels."""
_LABEL_ROOM = 13.0
"""Minimum distance of two tick labels in percent, so that they do not overlap on a phone."""
_RATIOS = (1.0, 2.0, 1.5, 1.2, 0.5, 5.0, 10.0, 0.2, 20.0, 50.0, 100.0, 0.1)
"""Ratios that get a label, the most important first."""
_BUCKETS = (1.05, 1.2, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis; without a label only a line."""

    x: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class DifferencePlot:
    """A relative difference with its interval, on the tolerance band.

    Attributes:
        label: text alternative for screen readers.
        band, interval: left end and width; the interval is ``None`` without an estimate.
        zero, point: positions. ticks: marks of the axis.
    """

    label: str
    band: tuple[float, float]
    interval: tuple[float, float] | None
    zero: float
    point: float
    ticks: list[Tick]


@dataclass(frozen=True, slots=True)
class RatioPlot:
    """A time as a multiple of its baseline, on a logarithmic axis.

    Attributes:
        label: text alternative for screen readers.
        bar: left end and width of the range between baseline and value.
        one, point: positions of the baseline and of the value. ticks: marks of the axis.
    """

    label: str
    bar: tuple[float, float]
    one: float
    point: float
    ticks: list[Tick]


def difference_plot(one: Accuracy) -> DifferencePlot | None:
    """Return the plot of a comparison; ``None`` if its difference is not finite."""
    ends = [*(one.interval or ()), one.relative_difference, one.tolerance]
    if not all(map(math.isfinite, ends)):
        return None
    reach = 1.15 * max(map(abs, ends)) or 1.0

    def place(value: float) -> float:
        return _place(value, -reach, reach)

    tolerated = place(-one.tolerance), place(one.tolerance) - place(-one.tolerance)
    step = _nice_step(reach)
    marks = [index * step for index in range(-2, 3) if abs(index * step) <= reach]
    label = f"relative difference {percent(one.relative_difference)}, tolerance ±{share(one.tolerance)}"
    if one.interval:
        label += f", 95 % interval {percent(one.interval[0])} to {percent(one.interval[1])}"
    return DifferencePlot(
        label,
        band=tolerated,
        interval=one.interval and (place(one.interval[0]), place(one.interval[1]) - place(one.interval[0])),
        zero=place(0.0),
        point=place(one.relative_difference),
        ticks=[Tick(place(mark), percent(mark)) for mark in marks],
    )


@dataclass(frozen=True, slots=True)
class TailPlot:
    """Share of samples by the ratio of deviation to margin, both axes logarithmic.

    Attributes:
        label: text alternative for screen readers.
        points: points of the curve, as an SVG list in percent of width and height.
        change: position of the ratio 1, above which predictions change. ticks: marks of the axis of ratios.
    """

    label: str
    points: str
    change: float
    ticks: list[Tick]


def tail_plot(one: Accuracy) -> TailPlot | None:
    """Return the plot of deviation over margin; ``None`` without margins, or if all outputs are equal."""
    if not one.tail:
        return None
    low = math.floor(min(math.log10(ratio) for ratio, _ in one.tail))
    high = max(0.5, *(math.log10(ratio) for ratio, _ in one.tail))
    least = min(math.log10(share) for _, share in one.tail) or -1.0

    def place(ratio: float) -> float:
        return _place(math.log10(ratio), low, high)

    points = " ".join(f"{place(ratio):g},{100 * math.log10(rank) / least:g}" for ratio, rank in one.tail)
    step = max(1, -low // 5)
    ticks = [Tick(place(10.0**power), f"1e{power}" if power else "1") for power in range(0, low - 1, -step)]
    label = f"deviation over margin: at most {one.tail[0][0]:.2g}; from 1 on, a prediction changes"
    return TailPlot(label, points, place(1.0), ticks)


def ratio_plot(one: Speed) -> RatioPlot | None:
    """Return the plot of a time and its baseline; ``None`` without a baseline."""
    if one.ratio is None or not (math.isfinite(one.ratio) and one.ratio > 0):
        return None
    low, high = math.log(min(0.75, one.ratio / 1.3)), math.log(max(2.4, one.ratio * 1.3))

    def place(ratio: float) -> float:
        return _place(math.log(ratio), low, high)

    at, origin = place(one.ratio), place(1.0)
    ticks: list[Tick] = []
    for ratio in _RATIOS:
        x = place(ratio)
        if _MARGIN <= x <= 100 - _MARGIN and all(abs(x - tick.x) >= _LABEL_ROOM for tick in ticks):
            ticks.append(Tick(x, f"{ratio:g}×"))
    lines = [Tick(place(bound)) for bound in _BUCKETS]
    label = f"{clean_line(one.what)}: {one.ratio:.3g} times the baseline"
    return RatioPlot(label, (min(at, origin), abs(at - origin)), origin, at, ticks + lines)


def _place(value: float, low: float, high: float) -> float:
    return round(_MARGIN + (100 - 2 * _MARGIN) * (value - low) / (high - low), 3)


def _nice_step(reach: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that at least two steps lie within the reach."""
    power = 10.0 ** math.floor(math.log10(reach))
    return next(power * factor for factor in (5, 2, 1, 0.5) if 2 * power * factor <= reach)
