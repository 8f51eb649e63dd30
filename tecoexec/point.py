"""Results of a sweep at one batch, and their comparison with reference results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tecoexec.config import Published
from tecoexec.references import Reference, References

DROP = 0.01
"""Relative deviation from the history above which a worse result is reported."""


@dataclass(frozen=True, slots=True)
class Point:
    """One batch of one case: milliseconds, samples per second, published and reference results."""

    case: str
    model: str
    target: str
    simulated: bool
    shape: str
    batch: int
    latency_ms: float
    average_ms: float
    throughput: float
    published: Published | None
    warnings: list[str]
    references: References = field(default_factory=dict)

    @property
    def errors(self) -> tuple[float, float] | None:
        """Relative errors of latency and throughput; ``None`` without published results."""
        if self.published is None:
            return None
        return self.latency_ms / self.published.latency_ms - 1, self.throughput / self.published.throughput - 1


def reference_columns(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Return the table columns of all references that any point has: the headings, and a row per point.

    Ratios are result / reference: a latency ratio below 1 is faster, a throughput ratio above 1 is higher.
    """
    names = list(dict.fromkeys(name for point in points for name in point.references))
    heads: list[str] = []
    rows: list[list[str]] = [[] for _ in points]
    for name in names:
        for key, unit in (("latency", " ms"), ("throughput", "/s")):
            cells = [_cells(point, name, key, unit) for point in points]
            if any(shown for shown, _ in cells):
                heads += [f"{name} {key}", f"{key} ratio to {name}"]
                for row, cell in zip(rows, cells, strict=True):
                    row += cell
    return heads, rows


def _cells(point: Point, name: str, key: str, unit: str) -> tuple[str, str]:
    place = ("latency", "throughput").index(key)
    reference = point.references.get(name, Reference())
    given, ratio = reference[place], reference.ratios(point.latency_ms, point.throughput)[place]
    if given is None or ratio is None:
        return "", ""
    return f"{given:.{2 if place == 0 else 1}f}{unit}", f"{ratio:.3f}"


def drops(point: Point) -> Iterator[str]:
    """Yield messages if a point is worse than its history by more than :data:`DROP`."""
    history = point.references.get("history", Reference())
    latency, throughput = history.ratios(point.latency_ms, point.throughput)
    where, label = f"drop: {point.case}, batch {point.batch}: ", "simulated " if point.simulated else ""
    if latency is not None and latency > 1 + DROP:
        own = f"{where}{label}latency {point.latency_ms:.3g} ms"
        yield f"{own} is {latency:.3f} times the history's {history.latency_ms:.3g} ms"
    if throughput is not None and throughput < 1 - DROP:
        own = f"{where}{label}throughput {point.throughput:.1f}/s"
        yield f"{own} is {throughput:.3f} times the history's {history.throughput:.1f}/s"


def references_of(point: Point) -> dict[str, dict[str, float | None]]:
    """Return the reference results of a point, each with the point's ratios to it."""
    found = {}
    for name, reference in point.references.items():
        ratios = reference.ratios(point.latency_ms, point.throughput)
        found[name] = {**reference._asdict(), "latency_ratio": ratios.latency_ms, "throughput_ratio": ratios.throughput}
    return found
