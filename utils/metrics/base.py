"""The contract of a metric: what it keeps of every sample, and how its value follows from that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.base import Array

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """What a metric keeps of a batch, as columns: any number of records for each sample.

    Attributes:
        values: a plain array whose first dimension is the records; numbers, booleans, or a structured dtype.
        samples: for each record the position of its sample in the batch, int64; ``None``: one record per sample, in
            order.
        units: for each record the name of what is independent of the rest; ``None``: its sample's
            (``Batch.units``, or the sample itself).
    """

    values: Array
    samples: Array | None = None
    units: Sequence[str] | None = None


class Metric(ABC):
    """Accumulates over batches; ``merge`` makes the result exact over processes, ``replay`` over resumed runs.

    A metric holds plain data only, so that it pickles and can be sent between processes. Most metrics are written as a
    :class:`RecordMetric`, which needs two methods.

    Attributes:
        name: short name for reports, such as ``top1``.
        higher_is_better: direction: every comparison of two values goes by it.
        per_sample: one number per sample, which is its own record: kept as CSV, all others as ``.npz``.
        bounds: smallest and largest value that a record can have, where that is known; the gate allows for kinds of
            samples that the data does not hold.
    """

    name: str
    higher_is_better: bool = True
    per_sample: ClassVar[bool] = False
    bounds: tuple[float, float] | None = None

    @abstractmethod
    def update(
        self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None = None
    ) -> Array | Records:
        """Take in one batch and return its records.

        Args:
            predictions: what the task's ``decode`` made of the batch, one entry per sample.
            targets: what is right, one entry per sample.
            contexts: what ``prepare`` kept of each sample, where it keeps anything.

        Returns:
            An array with one record per sample, in order, or :class:`Records`.

        Raises:
            InputError: predictions of a wrong kind, or not as many as targets.
            DataError: targets that cannot be targets of these predictions.
        """

    @abstractmethod
    def replay(self, record: Any) -> None:
        """Take in again what :meth:`update` returned for a batch.

        A metric that replays the records of another one, in the same order, computes the same value to the last bit.

        Raises:
            InputError: not a record of this metric.
        """

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in everything another metric of the same kind has seen.

        Raises:
            ConfigError: ``other`` measures something else.
        """

    @abstractmethod
    def compute(self) -> float:
        """Return the metric over everything seen so far.

        Raises:
            DataError: nothing has been seen.
        """

    @abstractmethod
    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of some records, each counted ``weights`` times: what the accuracy gate resamples.

        Args:
            records: as in :attr:`Records.values`, in any order.
            weights: float64, one per record, 0 or more. A unit drawn twice has 2 for all its records.
        """

    def secondary(self) -> Mapping[str, float]:
        """Return further figures by name, such as ``{"top5": 0.99}``; none of them decides anything."""
        return {}
