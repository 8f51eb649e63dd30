"""A base for metrics of records until the shared one takes its place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base import Array, ConfigError, DataError, InputError
from utils.metrics.base import Metric, Records

if TYPE_CHECKING:
    from typing_extensions import Self


class RecordMetric(Metric):
    """Keeps every record; a metric writes :meth:`records` and ``value``."""

    def __init__(self) -> None:
        self._kept: list[Array] = []

    @abstractmethod
    def records(
        self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None = None
    ) -> Array | Records:
        """Return the records of a batch."""

    def update(
        self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None = None
    ) -> Array | Records:
        """Take in one batch and return its records."""
        found = self.records(predictions, targets, contexts)
        self.replay(found)
        return found

    def replay(self, record: Any) -> None:
        """Take in the records of a batch."""
        values = record.values if isinstance(record, Records) else record
        if not isinstance(values, np.ndarray):
            raise InputError(f"{self.name}: a {type(values).__name__} is not a record; pass what update() returned")
        self._kept.append(values)

    def merge(self, other: Self) -> None:
        """Take in everything another metric has seen."""
        if type(other) is not type(self) or other.name != self.name:
            raise ConfigError(f"cannot merge {other.name} into {self.name}")
        self._kept += other._kept

    def kept(self) -> Array:
        """Return everything seen so far."""
        if not self._kept:
            raise DataError(f"{self.name}: no samples were evaluated, so there is no value; check the data set")
        return np.concatenate(self._kept)

    def compute(self) -> float:
        """Return the metric over everything seen so far."""
        kept = self.kept()
        return self.value(kept, np.ones(len(kept)))
