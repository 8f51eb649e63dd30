"""Figures of ``throughput.py``, for its tables and its chart."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Result:
    """One contestant on one model: medians over the rounds, and every round's seconds.

    Attributes:
        sps: images per second of wall time.
        utilisation: CPU seconds, children included, per wall second and core.
        peak_mb: largest memory in MB during the warm-up, children included, shared pages counted once.
        same_top1: share of images with the same best class as the serial loop.
        equal: whether the scores are the serial loop's bit by bit.
        ratio: ours over this one, the median over the rounds.
    """

    contestant: str
    note: str
    sps: float
    utilisation: float
    peak_mb: float
    same_top1: float | None
    equal: bool | None
    ratio: float | None
    seconds: list[float]


@dataclass(slots=True)
class Target:
    """A figure that is asked for, and the one measured."""

    what: str
    at_least: float
    value: float

    @property
    def met(self) -> bool:
        """Whether the measured figure is enough."""
        return self.value >= self.at_least


@dataclass(slots=True)
class Limit:
    """Rate of fully used cores; seconds are CPU seconds per image."""

    contestant: str
    sps: float
    preprocess_s: float
    inference_s: float
    share: float


@dataclass(slots=True)
class Measured:
    """Everything measured on one model."""

    model: str
    batch_size: int
    images: int
    rounds: int
    results: list[Result] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)

    def result(self, name: str) -> Result | None:
        """Return a contestant's result, or ``None``."""
        return next((result for result in self.results if result.contestant == name), None)

    @property
    def agree(self) -> bool:
        """Whether ours equals the serial loop exactly."""
        ours = self.result("ours")
        return ours is not None and ours.equal is not False
