"""The contract of a metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from engine.base import Array

if TYPE_CHECKING:
    from typing_extensions import Self


class Metric(ABC):
    """Accumulates over batches; ``merge`` makes the result exact over processes, ``replay`` over resumed runs.

    A metric holds plain data only, so that it pickles and can be sent between processes. A record is a numpy array of a
    plain dtype (booleans, numbers) whose first dimension is the samples of the batch.

    Attributes:
        name: short name for reports, such as ``top1``.
    """

    name: str

    @abstractmethod
    def update(self, predictions: Array, labels: Array) -> Array:
        """Take in one batch and return its record, one entry per sample (for paired comparisons of two runs).

        Raises:
            InputError: predictions of a wrong shape or dtype, or not as many as labels.
            DataError: labels that cannot be labels of these predictions.
        """

    @abstractmethod
    def replay(self, record: Array) -> None:
        """Take in again the record that :meth:`update` returned for a batch.

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
