"""Figures a configuration gives beside a case: earlier runs (``history``) and other cards (``cuda``), by batch.

Older configurations have one figure per case, or a list that goes along with ``batch_size``; what is left out, or
empty, has no figure. ``cuda_latency`` is in **seconds**, all other latencies are in milliseconds, as they always were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tecoexec.point import Point

_FIGURES = {
    "history_latency": ("history", "latency_ms", 1.0),
    "history_throughput": ("history", "throughput", 1.0),
    "cuda_latency": ("cuda", "latency_ms", 1e3),
    "cuda_throughput": ("cuda", "throughput", 1.0),
    "benchmark_of_latency": ("benchmark", "latency_ms", 1.0),
}
"""Key -> what it is a figure of, which one, and what makes it milliseconds, or samples per second."""

KEYS = tuple(_FIGURES)
"""Keys of a case in ``tecoexec_config.yaml``."""

DROP = 0.01
"""Share by which a figure must be worse than its history for that to be said."""


class Reference(NamedTuple):
    """Somebody's figures at one batch: milliseconds, and samples per second; ``None`` where there is none."""

    latency_ms: float | None = None
    throughput: float | None = None

    def ratios(self, latency_ms: float, throughput: float) -> Reference:
        """Return own figures over these."""
        return Reference(
            None if self.latency_ms is None else latency_ms / self.latency_ms,
            None if self.throughput is None else throughput / self.throughput,
        )


References = Mapping[str, Reference]
"""``history``, ``cuda`` and ``benchmark`` -> the figures at one batch."""


class BadReference(ValueError):  # noqa: N818 -- its reader turns it into the error of the configuration
    """A figure that cannot be one: ``key`` of the case, and ``text`` that says what is wrong."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


def read_references(case: Mapping[str, Any], batches: Sequence[int]) -> dict[int, References]:
    """Return the figures of a case by batch.

    Args:
        case: the entry of the configuration. batches: its batches, with which lists of figures go along.

    Raises:
        BadReference: a figure is no positive number, or there are more of them than batches.
    """
    found: dict[int, dict[str, Reference]] = {}
    for key, (name, field, unit) in _FIGURES.items():
        given = case.get(key)
        values = given if isinstance(given, list) else [given]
        if len(values) > len(batches):
            raise BadReference(key, f"has {len(values)} figures for {len(batches)} batches; give one per batch_size")
        for batch, value in zip(batches, values, strict=False):
            if value is not None:
                mine = found.setdefault(batch, {})
                mine[name] = mine.get(name, Reference())._replace(**{field: _figure(key, value) * unit})
    return {batch: dict(references) for batch, references in found.items()}


def _figure(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise BadReference(key, f"{value!r} must be a positive number, a list of them, or nothing")
    return float(value)


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
