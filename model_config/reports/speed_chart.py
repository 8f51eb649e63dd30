"""Geometry of the chart of speed against accuracy of a domain; the template of the site draws it as SVG.

Horizontal positions are percentages of the plot's width, vertical ones pixels, so that text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model_config.reports.plots import Tick

TOP, BOTTOM, HEIGHT = 26.0, 226.0, 278.0
"""Upper and lower edge of the plot, and height of the drawing with the labels, in pixels."""

_EDGE = 4.0  # percent of the width that stay free at both sides
_LINE = 15.0  # pixels between the labels of points that are close to one another
_CLOSE = 30.0  # percent of the width within which labels would overlap


@dataclass(frozen=True, slots=True)
class Measured:
    """Speed and accuracy of a model.

    Attributes:
        name: of the model. path: its folder, for the link. metric: name of the metric.
        value: between 0 and 1. lower: whether a lower value is better: then 1 - value is drawn.
        rate: simulated samples per second of the card.
    """

    name: str
    path: str
    metric: str
    value: float
    lower: bool
    rate: float

    @property
    def score(self) -> float:
        """Height in the chart: the value, or of an error rate what is left to 1."""
        return 1 - self.value if self.lower else self.value

    @property
    def words(self) -> str:
        """What the point says when it is pointed at."""
        metric = f"1 − {self.metric}" if self.lower else self.metric
        return f"{self.name}: {metric} {self.score:.4f}, {self.rate:,.0f} simulated samples/s"


@dataclass(frozen=True, slots=True)
class Point:
    """A model: position, its label with alignment and height, and what it says when it is pointed at."""

    x: float
    y: float
    label: str
    anchor: str
    label_y: float
    words: str
    path: str


@dataclass(frozen=True, slots=True)
class SpeedChart:
    """The chart: points, marks of both axes (``up``: height in pixels as ``x`` of a mark), and a text alternative."""

    points: Sequence[Point]
    across: Sequence[Tick]
    up: Sequence[Tick]
    label: str


def speed_chart(domain: str, models: Iterable[Measured]) -> SpeedChart | None:
    """Return the chart of a domain; ``None`` for fewer than two models: one point compares nothing."""
    shown = sorted(models, key=lambda one: -one.score)
    if len(shown) < 2:
        return None
    rates = [math.log10(one.rate) for one in shown]
    low, high = math.floor(min(rates)), math.ceil(max(rates))
    high = max(high, low + 1)
    step = 0.2 if shown[-1].score < 0.5 else 0.1
    bottom = max(0.0, step * (math.ceil(shown[-1].score / step - 1e-9) - 1))

    def x(rate: float) -> float:
        return round(_EDGE + (100 - 2 * _EDGE) * (math.log10(rate) - low) / (high - low), 2)

    def y(score: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (score - bottom) / (1 - bottom), 1)

    points: list[Point] = []
    for one in shown:
        place, height = x(one.rate), y(one.score)
        near = [known.label_y for known in points if abs(known.x - place) < _CLOSE]
        label_y = max([height + 4, *(lower + _LINE for lower in near if lower + _LINE > height + 4)])
        anchor = "start" if place < 60 else "end"
        points.append(Point(place, height, one.name, anchor, label_y, one.words, one.path))
    across = [Tick(x(10.0**power), f"{10**power:,}" if power >= 0 else f"1e{power}") for power in range(low, high + 1)]
    gap = step / 2 if 1 - bottom < 1.5 * step else step
    marks = [bottom + gap * turn for turn in range(round((1 - bottom) / gap) + 1)]
    up = [Tick(y(mark), f"{mark:.3g}") for mark in marks]
    return SpeedChart(points, across, up, f"{domain}: {'; '.join(one.words for one in shown)}")
