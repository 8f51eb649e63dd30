"""What a sweep finds at one batch, for its table, its files and its plot."""

from __future__ import annotations

from dataclasses import dataclass, field

from tecoexec.config import Published
from tecoexec.references import References


@dataclass(frozen=True, slots=True)
class Point:
    """One batch of one case: milliseconds, samples per second, what is published of it, and other figures beside."""

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
        """Latency and throughput over the published ones, less 1; ``None`` where nothing is published."""
        if self.published is None:
            return None
        return self.latency_ms / self.published.latency_ms - 1, self.throughput / self.published.throughput - 1
