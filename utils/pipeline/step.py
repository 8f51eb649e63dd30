"""What an evaluation keeps of one finished step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine import Array
from utils.metrics.base import Records
from utils.pipeline.prepare import Failure


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What is kept of one finished step.

    Attributes:
        size: samples in the batch, those that failed too.
        record: what the metric's ``update`` returned: an array with one entry per sample that made it, or records of
            them; ``None`` where none did.
        good: positions in the batch of the samples that made it, rising; ``None`` where all did.
        failures: the samples that could not be run.
        nan_inputs, nan_outputs: names of the samples whose input, or whose output, held NaN.
        counts: what the task counted of the batch, by name.
    """

    size: int
    record: Array | Records | None
    good: tuple[int, ...] | None = None
    failures: tuple[Failure, ...] = ()
    nan_inputs: tuple[str, ...] = ()
    nan_outputs: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples that made it."""
        if self.record is None:
            return 0
        return self.size if self.good is None else len(self.good)
