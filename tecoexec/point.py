"""Results of a sweep at one batch, and reference results of a configuration: earlier runs and other cards.

A reference key has one value per case, or a list corresponding to ``batch_size``; it may be missing or empty.
For compatibility ``cuda_latency`` is in **seconds**, all other latencies are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tecoinfer_modelzoo.text import shown_value


class Published(NamedTuple):
    """Published results: milliseconds, and samples per second."""

    latency_ms: float
    throughput: float


_FIGURES = {
    "history_latency": ("history", "latency_ms", 1.0),
    "history_throughput": ("history", "throughput", 1.0),
    "cuda_latency": ("cuda", "latency_ms", 1e3),
    "cuda_throughput": ("cuda", "throughput", 1.0),
    "benchmark_of_latency": ("benchmark", "latency_ms", 1.0),
}
"""Key -> name of the reference, field, and factor to milliseconds or samples per second."""

KEYS = tuple(_FIGURES)
"""Keys of a case in ``tecoexec_config.yaml``."""


class Reference(NamedTuple):
    """Reference results at one batch: milliseconds, and samples per second; ``None`` if missing."""

    latency_ms: float | None = None
    throughput: float | None = None

    def ratios(self, latency_ms: float, throughput: float) -> Reference:
        """Return the ratios of results to these references."""
        return Reference(
            None if self.latency_ms is None else latency_ms / self.latency_ms,
            None if self.throughput is None else throughput / self.throughput,
        )


References = Mapping[str, Reference]
"""``history``, ``cuda`` and ``benchmark`` -> results at one batch."""


class BadReference(ValueError):  # noqa: N818 -- converted to ConfigError by the reader
    """Invalid reference: ``key`` of the case, and ``text`` with the problem."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


def read_references(case: Mapping[str, Any], batches: Sequence[int]) -> dict[int, References]:
    """Return the reference results of a case by batch; raise BadReference for invalid or too many values."""
    found: dict[int, dict[str, Reference]] = {}
    for key, (name, column, unit) in _FIGURES.items():
        given = case.get(key)
        values = given if isinstance(given, list) else [given]
        if len(values) > len(batches):
            raise BadReference(key, f"has {len(values)} values for {len(batches)} batches; give one per batch_size")
        for batch, value in zip(batches, values, strict=False):
            if value is not None:
                mine = found.setdefault(batch, {})
                mine[name] = mine.get(name, Reference())._replace(**{column: _figure(key, value) * unit})
    return {batch: dict(references) for batch, references in found.items()}


def _figure(key: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else 0.0  # YAML parses 1e6 as a string
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise BadReference(key, f"{shown_value(value)} must be a positive number, a list of them, or nothing")
    return number


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
