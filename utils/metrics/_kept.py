"""Stands in for ``utils.metrics.base.RecordMetric`` until that is merged; then import that and remove this file."""

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

    _parts: list[Array]
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Make one that has seen nothing, and note its options."""
        made = super().__new__(cls)
        made._parts, made._arguments = [], (args, options)
        return made

    @abstractmethod
    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Array | Records:
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
        self._parts.append(values)

    def merge(self, other: Self) -> None:
        """Take in everything another metric has seen."""
        if type(other) is not type(self) or other._arguments != self._arguments:
            raise ConfigError(f"cannot merge {other.name} into {self.name}; merge metrics made with the same options")
        self._parts += other._parts

    def compute(self) -> float:
        """Return the metric over everything seen so far."""
        values = self._all()
        return self.value(values, np.ones(len(values)))

    def _all(self) -> Array:
        """Return everything seen so far."""
        if not self._parts:
            raise DataError(f"{self.name}: there are no records, so there is no value; check the data set")
        return np.concatenate(self._parts)
