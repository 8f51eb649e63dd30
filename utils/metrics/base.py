"""The contract of a metric: what it keeps of every sample, and how its value follows from that."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, InputError

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
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Make one and note what it was made with, so that another process can make it again from JSON."""
        made = super().__new__(cls)
        object.__setattr__(made, "_arguments", (args, options))
        return made

    @abstractmethod
    def update(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
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

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value` of these records.

        A metric whose value takes long does once here what hangs on the records alone, such as sorting them: a
        bootstrap asks for thousands of weightings.
        """
        return partial(self.value, records)

    def unknown(self) -> str:
        """Return why :meth:`compute` gave NaN though no output holds any, and what helps; empty: nobody knows."""
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return further figures by name, such as ``{"top5": 0.99}``; none of them decides anything."""
        return {}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return figures of single classes: by the class's name, each by its own name; none decides anything.

        All classes have the same figures; NaN stands for one that a class does not have.
        """
        return {}


class RecordMetric(Metric):
    """A metric that keeps all records as columns. A concrete one writes :meth:`records` and :meth:`value`, and a name.

    :meth:`compute` is the value of the records in the order of their bytes, so it is equal to the last bit for any
    split over processes, any batch size and any resumed run. All batches give records of one dtype and one shape each.
    """

    _parts: list[Array]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Make one that has seen nothing; a concrete metric's ``__init__`` need not call this class's."""
        made = super().__new__(cls, *args, **options)
        object.__setattr__(made, "_parts", [])
        return made

    @abstractmethod
    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None
    ) -> Array | Records:
        """Return the records of one batch; the arguments are :meth:`update`'s.

        Returns:
            An array with one record per sample, in order, or :class:`Records`.
        """

    def update(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Array | Records:
        """Take in one batch and return its records, as :meth:`Metric.update` says."""
        if isinstance(predictions, Sized) and len(predictions) != len(targets):
            raise InputError(
                f"{self.name}: {len(predictions)} predictions came with {len(targets)} targets; pass one per sample"
            )
        record = self._checked(self.records(predictions, targets, contexts), len(targets))
        self.replay(record)
        return record

    def replay(self, record: Any) -> None:
        """Keep the records of a batch."""
        values = record.values if isinstance(record, Records) else record
        if not isinstance(values, np.ndarray) or values.ndim == 0 or not _plain(values.dtype):
            raise InputError(f"{self.name}: a {type(record).__name__} is not a record; pass what update() returned")
        if not len(values):
            return
        first = self._parts[0] if self._parts else values
        if first.dtype != values.dtype or first.shape[1:] != values.shape[1:]:
            raise InputError(
                f"{self.name}: records of dtype {values.dtype} and shape {values.shape[1:]} each came after some of "
                f"dtype {first.dtype} and shape {first.shape[1:]}; let records() return one kind for all batches"
            )
        self._parts.append(values)

    def merge(self, other: Self) -> None:
        """Take in the records of another metric of the same class and with the same options."""
        if not _measure_the_same(self, other):
            raise ConfigError(f"cannot merge {other.name} into {self.name}; merge metrics made with the same options")
        for part in other._parts:
            self.replay(part)

    def compute(self) -> float:
        """Return :meth:`value` of all records, each counted once."""
        values = self._all()
        return float(self.value(_in_order_of_bytes(values), np.ones(len(values))))

    def _all(self) -> Array:
        """Return the records of all batches; they are joined once."""
        if not self._parts:
            raise DataError(f"{self.name}: there are no records, so there is no value; check the data set")
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def __getstate__(self) -> dict[str, Any]:
        if self._parts:
            self._all()
        return self.__dict__

    def _checked(self, found: Array | Records, count: int) -> Array | Records:
        """Return the records of a batch of ``count`` samples, copied and packed."""
        columns = found if isinstance(found, Records) else Records(found)
        values = self._packed(columns.values)
        samples = None if columns.samples is None else np.asarray(columns.samples)
        units = None if columns.units is None else list(map(str, columns.units))
        if samples is None and len(values) != count:
            raise InputError(
                f"{self.name}: {len(values)} records for {count} samples; where that is meant, return "
                "Records(values, samples) with the position of the sample of each"
            )
        self._refuse_length("samples", samples, len(values))
        self._refuse_length("units", units, len(values))
        if samples is not None and not _are_positions(samples, count):
            raise InputError(f"{self.name}: samples of records must be whole numbers from 0 to {count - 1}")
        if not isinstance(found, Records):
            return values
        return Records(values, None if samples is None else samples.astype(np.int64), units)

    def _refuse_length(self, what: str, column: Sized | None, count: int) -> None:
        if column is not None and len(column) != count:
            raise InputError(f"{self.name}: {len(column)} {what} for {count} records; give one per record")

    def _packed(self, values: Any) -> Array:
        """Return a copy whose bytes are all values: the order of the records goes by them."""
        packed: Array = np.array(values, order="C")
        if packed.ndim == 0 or not _plain(packed.dtype):
            raise InputError(
                f"{self.name}: records of dtype {packed.dtype} and shape {packed.shape} cannot be kept; return "
                "numbers, booleans or a structured dtype, with the records along the first dimension"
            )
        if packed.dtype.names is None:
            return packed
        from numpy.lib.recfunctions import repack_fields  # 8 ms of every start

        return repack_fields(packed, recurse=True)


class MeanMetric(RecordMetric):
    """The mean of one number per sample; a concrete one writes :meth:`records` (N numbers or booleans) and a name."""

    per_sample: ClassVar[bool] = True

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean; NaN where no record has any weight."""
        total = float(weights.sum())
        return float(np.dot(weights, records.astype(np.float64, copy=False)) / total) if total else math.nan

    def compute(self) -> float:
        """Return the mean, with the sum rounded once (``math.fsum``), so that no order of the records changes it."""
        values = self._all().astype(np.float64)
        try:
            return math.fsum(values.tolist()) / len(values)
        except OverflowError:  # on the way, though the mean may be a number
            return math.ldexp(math.fsum(np.ldexp(values, -64).tolist()) / len(values), 64)
        except ValueError:  # infinities of both signs
            return math.nan

    def _packed(self, values: Any) -> Array:
        packed = super()._packed(values)
        if packed.ndim != 1 or packed.dtype.kind not in "biuf":
            raise InputError(
                f"{self.name}: records of dtype {packed.dtype} and shape {packed.shape}; a mean takes one each"
            )
        return packed


def _measure_the_same(one: Metric, other: Metric) -> bool:
    """Say whether two metrics measure the same: one class and name, and equal options where those are plain values."""
    if type(one) is not type(other) or one.name != other.name:
        return False
    from utils.metrics.arguments import plain_arguments

    try:
        return plain_arguments(type(one), *one._arguments) == plain_arguments(type(other), *other._arguments)
    except ConfigError:
        return True


def _are_positions(samples: Array, count: int) -> bool:
    """Say whether these are whole numbers from 0 up to a count; none at all are, of any dtype."""
    if not samples.size:
        return True
    return bool(samples.dtype.kind in "iu" and samples.ndim == 1 and samples.min() >= 0 and samples.max() < count)


def _plain(dtype: np.dtype[Any]) -> bool:
    return not dtype.hasobject and (dtype.names is not None or dtype.kind in "biufc")


def _in_order_of_bytes(values: Array) -> Array:
    """Return the records sorted by their bytes: an order that does not depend on how they came."""
    size = values.dtype.itemsize * math.prod(values.shape[1:])
    if len(values) < 2 or not size:
        return values
    keys = np.frombuffer(values.tobytes(), f"u{size}" if size in (1, 2, 4, 8) else f"S{size}")
    return values[np.argsort(keys, kind="stable")]
