"""What a sweep says of its points beside the figures their cases give: columns, ratios, and drops against history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tecoexec.point import Point
from tecoexec.references import Reference

DROP = 0.01
"""Share by which a figure must be worse than its history for that to be said."""


def columns(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a table for the figures that any point has: the heads, and a row per point.

    A ratio is the own figure over the other one: a latency below 1 is less time, a throughput above 1 is more work.
    """
    names = list(dict.fromkeys(name for point in points for name in point.references))
    heads: list[str] = []
    rows: list[list[str]] = [[] for _ in points]
    for name in names:
        for field, unit in (("latency", " ms"), ("throughput", "/s")):
            cells = [_cells(point, name, field, unit) for point in points]
            if any(shown for shown, _ in cells):
                heads += [f"{name} {field}", f"{field} ratio to {name}"]
                for row, cell in zip(rows, cells, strict=True):
                    row += cell
    return heads, rows


def _cells(point: Point, name: str, field: str, unit: str) -> tuple[str, str]:
    place = ("latency", "throughput").index(field)
    reference = point.references.get(name, Reference())
    given, ratio = reference[place], reference.ratios(point.latency_ms, point.throughput)[place]
    if given is None or ratio is None:
        return "", ""
    return f"{given:.{2 if place == 0 else 1}f}{unit}", f"{ratio:.3f}"


def drops(point: Point) -> Iterator[str]:
    """Say where a point is worse than its history by more than :data:`DROP`."""
    history = point.references.get("history", Reference())
    latency, throughput = history.ratios(point.latency_ms, point.throughput)
    label = "simulated " if point.simulated else ""
    where = f"{point.case}, batch {point.batch}"
    if latency is not None and latency > 1 + DROP:
        yield (
            f"drop: {where}: {label}latency {point.latency_ms:.3g} ms is {latency:.3f} times the history's "
            f"{history.latency_ms:.3g} ms"
        )
    if throughput is not None and throughput < 1 - DROP:
        yield (
            f"drop: {where}: {label}throughput {point.throughput:.1f}/s is {throughput:.3f} times the history's "
            f"{history.throughput:.1f}/s"
        )


def to_dict(point: Point) -> dict[str, dict[str, float | None]]:
    """Return the figures beside a point, each with the point's ratio to it."""
    return {name: _with_ratios(reference, point) for name, reference in point.references.items()}


def _with_ratios(reference: Reference, point: Point) -> dict[str, float | None]:
    ratios = reference.ratios(point.latency_ms, point.throughput)
    return {**reference._asdict(), "latency_ratio": ratios.latency_ms, "throughput_ratio": ratios.throughput}
