"""Charts of the tools' pages: curves of positive values on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tecoinfer_modelzoo.formatting import clean_line

_LEFT, _RIGHT = 64.0, 990.0  # of the plot, of 1000 units
_BOTTOM, _LANE = 220.0, 18.0  # of the lowest decade, and the distance of the lane of zeros below it
_LABELS = 5  # largest number of names on the axis; each second one is left out on a narrow screen
_LONGEST = 20  # largest number of characters of a name on the axis
_DESCRIBED = 500  # largest number of positions that have a description to point at


@dataclass(frozen=True, slots=True)
class Line:
    """Curve of a :class:`Chart`: one value per position; ``None``, NaN and values of 0 or less are gaps.

    Values of 0 or less have no place on a logarithmic axis: they are dots in a lane of their own below it.
    """

    label: str
    colour: str
    values: Sequence[float | None]


class Name(NamedTuple):
    """A name on the axis: x coordinate, alignment, shortened and whole text, and whether narrow screens omit it."""

    x: float
    anchor: str
    text: str
    whole: str
    rare: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of positive values on a logarithmic axis."""

    title: str  # heading
    axis: str  # label of the horizontal axis
    lines: Sequence[Line]  # curves of equal length
    limit: float | None = None  # value of a horizontal line, such as a threshold
    mark: int | None = None  # position to highlight
    names: Sequence[str] = ()  # of the positions; some of them are written at the axis

    @property
    def count(self) -> int:
        """Number of positions."""
        return max((len(line.values) for line in self.lines), default=0)

    @property
    def top(self) -> float:
        """Upper edge; above it is the name of the highlighted position."""
        return 30.0 if self.names and self.mark is not None else 10.0

    @property
    def lane(self) -> float | None:
        """Height of the lane of values that are 0 or less; ``None`` without any."""
        flat = (value for line in self.lines for value in line.values if value is not None and value <= 0)
        return _BOTTOM + _LANE if next(flat, None) is not None else None

    @property
    def lane_label(self) -> str:
        """Label of the lane: 0, and whether it has negative values."""
        return "≤ 0" if any(v is not None and v < 0 for line in self.lines for v in line.values) else "0"

    @property
    def foot(self) -> float:
        """Lower edge of the plot; labels are below it."""
        return self.lane or _BOTTOM

    @property
    def decades(self) -> tuple[int, int]:
        """Exponents of the powers of ten that enclose all values."""
        shown = [value for line in self.lines for value in line.values if _shown(value)]
        logs = [math.log10(value) for value in (*shown, self.limit) if value]
        low, high = math.floor(min(logs, default=-1)), math.ceil(max(logs, default=0))
        return low, max(high, low + 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Height and label of every n-th power of ten, n growing with the range."""
        low, high = self.decades
        return [(self.height(10.0**power), f"1e{power}") for power in range(low, high + 1, 1 + (high - low) // 8)]

    @property
    def axis_names(self) -> list[Name]:
        """Names at the axis: the first, the last and some between them."""
        last = min(len(self.names), self.count) - 1
        places = sorted({round(i * last / (_LABELS - 1)) for i in range(_LABELS)}) if last >= 0 else []
        found = []
        for turn, place in enumerate(places):
            whole = clean_line(self.names[place])
            anchor = "start" if turn == 0 else "end" if place == last else "middle"
            found.append(Name(self.x(place), anchor, _brief(whole), whole, turn % 2 == 1))
        return found

    @property
    def marked_name(self) -> Name | None:
        """Name of the highlighted position, on the side of its line that has more room."""
        if self.mark is None or self.mark >= len(self.names):
            return None
        x, whole = self.x(self.mark), clean_line(self.names[self.mark])
        right = x < (_LEFT + _RIGHT) / 2
        return Name(x + (7 if right else -7), "start" if right else "end", _brief(whole, 48), whole, rare=False)

    @property
    def described(self) -> list[tuple[float, float, str]]:
        """Left end, width and description of every position, to point at; empty if these are too many."""
        if not 0 < len(self.names) == self.count <= _DESCRIBED:
            return []
        wide = round((_RIGHT - _LEFT) / self.count, 2)
        return [(round(_LEFT + wide * i, 2), wide, self._description_of(i)) for i in range(self.count)]

    def _description_of(self, position: int) -> str:
        values = ((line.label, line.values[position]) for line in self.lines if position < len(line.values))
        words = [f"{label} {value:.3g}" for label, value in values if value is not None]
        return f"{clean_line(self.names[position])}: {', '.join(words) or 'no value'}"

    def x(self, position: int) -> float:
        """Return the x coordinate of a position."""
        return round(_LEFT + (_RIGHT - _LEFT) * (position + 0.5) / max(self.count, 1), 1)

    def height(self, value: float) -> float:
        """Return the y coordinate of a positive value; infinite values are at the upper edge."""
        low, high = self.decades
        share = (math.log10(value) - low) / (high - low) if math.isfinite(value) else 1.0
        return round(self.top + (_BOTTOM - self.top) * (1 - min(1.0, max(0.0, share))), 1)

    def paths(self, line: Line) -> list[str]:
        """Return the points of each unbroken piece of a curve; a single point is doubled, which draws a dot."""
        pieces: list[list[str]] = [[]]
        for i, value in enumerate(line.values):
            if value is None or math.isnan(value) or value <= 0:
                pieces.append([])
                continue
            pieces[-1].append(f"{self.x(i)},{self.height(value)}")
        return [" ".join(piece * 2 if len(piece) == 1 else piece) for piece in pieces if piece]

    def dots(self, line: Line) -> str:
        """Return the SVG path of the dots of a curve in the lane of zeros; "" without any."""
        lane = self.lane
        places = (i for i, value in enumerate(line.values) if value is not None and value <= 0)
        return "" if lane is None else "".join(f"M{self.x(i)} {lane}h0" for i in places)

    @property
    def description(self) -> str:
        """Text alternative of the chart."""
        peaks = [
            f"{line.label} up to {max((v for v in line.values if v is not None and _shown(v)), default=0.0):.3g}"
            for line in self.lines
        ]
        return f"{self.title}: {', '.join(peaks)}"


def _shown(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


def _brief(name: str, most: int = _LONGEST) -> str:
    """Return the end of a name, which tells the nodes of a module apart."""
    return name if len(name) <= most else f"…{name[1 - most :]}"
