"""Base classes of metrics: records per sample, and a value computed from them."""

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

    from utils.metrics.gaps import Gaps


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records:
    """Records of a batch: any number per sample.

    Attributes:
        values: an array whose first dimension is the records; numbers, booleans, or a structured dtype.
        samples: int64, index of each record's sample in the batch; ``None``: one record per sample, in order.
        units: per record the name of its independent unit; ``None``: that of its sample (``Batch.units``, or the sample
            itself).
        margins: float64, per *sample* of the batch how far its outputs are from changing its record: 0 where it
            changes, in the unit of the outputs (:attr:`Metric.has_margins`).
    """

    values: Array
    samples: Array | None = None
    units: Sequence[str] | None = None
    margins: Array | None = None


class Metric(ABC):
    """Accumulates over batches; ``merge`` makes the result exact over processes, ``replay`` over resumed runs.

    A metric has only plain data, so that it can be pickled and sent between processes. Most metrics are subclasses of
    :class:`RecordMetric`, which needs two methods.

    Attributes:
        name: short name for reports, such as ``top1``.
        higher_is_better: direction of every comparison of two values.
        per_sample: one number per sample, which is its record: stored as CSV, all others as ``.npz``.
        has_margins: :meth:`update` returns :class:`Records` with margins; the gate bounds the change on other data by
            them if the value is the mean over samples of a number within ``bounds``, or by :meth:`effect`.
        bounds: minimum and maximum of a record, if known.
    """

    name: str
    higher_is_better: bool = True
    per_sample: ClassVar[bool] = False
    has_margins: ClassVar[bool] = False
    bounds: tuple[float, float] | None = None
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Create a metric and keep its arguments, so that another process can recreate it from JSON."""
        made = super().__new__(cls)
        object.__setattr__(made, "_arguments", (args, options))
        return made

    @abstractmethod
    def update(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Array | Records:
        """Add one batch and return its records.

        Args:
            predictions: output of the task's ``decode``, one entry per sample.
            targets: ground truth, one entry per sample.
            contexts: per sample the context returned by ``prepare``, if any.

        Returns:
            An array with one record per sample, in order, or :class:`Records`.

        Raises:
            InputError: predictions of a wrong type or number.
            DataError: targets that do not match the predictions.
        """

    @abstractmethod
    def replay(self, record: Any) -> None:
        """Add the records that :meth:`update` returned for a batch.

        A metric that replays the records of another one, in the same order, computes the same value bit for bit. Raises
        InputError if ``record`` is not a record of this metric.
        """

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add all records of another metric of the same kind.

        Raises ConfigError if ``other`` has another class, name or options.
        """

    @abstractmethod
    def compute(self) -> float:
        """Return the metric over all batches so far. Raises DataError without samples."""

    @abstractmethod
    def value(self, records: Array, weights: Array) -> float:
        """Return the metric of some records, each counted ``weights`` times; the accuracy gate resamples with it.

        Args:
            records: as in :attr:`Records.values`, in any order.
            weights: float64, one per record, 0 or more. A unit drawn twice has 2 for all its records.
        """

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value` of these records.

        Slow metrics do the work that depends only on the records here, such as sorting, because a bootstrap evaluates
        thousands of weightings.
        """
        return partial(self.value, records)

    def smoothed(self, records: Array) -> Callable[[Array], float] | None:
        """Return :meth:`weighing` of a variant of the value without jumps; ``None``: there is none.

        Between two runs the variant must change by the same as the value in the mean over data sets, but vary less.
        """
        return None

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return margins that follow from the records of two runs; ``None``: only those of :attr:`Records.margins`.

        Args:
            target, baseline: records of both runs over the same samples, in one order. units: N integers, their units.
        """
        return None

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the relative change of the value over the share of changed samples (or gaps), at most.

        Only for a metric that is not a mean of numbers within ``bounds``; to first order in the share. NaN: unknown.

        Args:
            target, baseline: records of both runs, as for :meth:`gaps`.
        """
        return math.nan

    def unknown(self) -> str:
        """Return why :meth:`compute` gave NaN although no output has any, and the fix; empty: unknown."""
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return further figures by name, such as ``{"top5": 0.99}``, for information only."""
        return {}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return figures of single classes for information: class name -> figure name -> value.

        All classes have the same figures; NaN if a class has no value.
        """
        return {}


class RecordMetric(Metric):
    """A metric that keeps all records. Subclasses define :meth:`records`, :meth:`value` and a name.

    :meth:`compute` is the value of the records sorted by their bytes, so it is bit for bit the same for any split over
    processes, any batch size and any resumed run. All batches must have records of the same dtype and shape.
    """

    _parts: list[Array]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Create an empty metric; the ``__init__`` of a subclass need not call this class's."""
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
        """Add one batch and return its records, see :meth:`Metric.update`."""
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
            raise InputError(f"{self.name}: a {type(record).__name__} is not a record; pass a result of update()")
        if not len(values):
            return
        first = self._parts[0] if self._parts else values
        if first.dtype != values.dtype or first.shape[1:] != values.shape[1:]:
            raise InputError(
                f"{self.name}: records of dtype {values.dtype} and shape {values.shape[1:]} came after records of "
                f"dtype {first.dtype} and shape {first.shape[1:]}; return the same kind from records() for all batches"
            )
        self._parts.append(values)

    def merge(self, other: Self) -> None:
        """Add the records of another metric of the same class and with the same options."""
        if not _measure_the_same(self, other):
            raise ConfigError(f"cannot merge {other.name} into {self.name}; merge metrics made with the same options")
        for part in other._parts:
            self.replay(part)

    def compute(self) -> float:
        """Return :meth:`value` of all records, each counted once."""
        values = self._all()
        return float(self.value(in_order_of_bytes(values), np.ones(len(values))))

    def _all(self) -> Array:
        """Return the records of all batches, concatenated once."""
        if not self._parts:
            raise DataError(f"{self.name}: no records were added, so it has no value; check the data set")
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
                f"{self.name}: {len(values)} records for {count} samples; if this is intended, return "
                "Records(values, samples) with the index of each record's sample"
            )
        self._refuse_length("samples", samples, len(values))
        self._refuse_length("units", units, len(values))
        if samples is not None and not _are_positions(samples, count):
            raise InputError(f"{self.name}: samples of records must be integers from 0 to {count - 1}")
        if not isinstance(found, Records):
            return values
        margins = None if columns.margins is None else np.asarray(columns.margins, np.float64)
        if margins is not None and margins.shape != (count,):
            raise InputError(
                f"{self.name}: margins of shape {margins.shape} for {count} samples; return one per sample"
            )
        return Records(values, None if samples is None else samples.astype(np.int64), units, margins)

    def _refuse_length(self, what: str, column: Sized | None, count: int) -> None:
        if column is not None and len(column) != count:
            raise InputError(f"{self.name}: {len(column)} {what} for {count} records; return one per record")

    def _packed(self, values: Any) -> Array:
        """Return a packed copy without padding bytes, because records are sorted by their bytes."""
        packed: Array = np.array(values, order="C")
        if packed.ndim == 0 or not _plain(packed.dtype):
            raise InputError(
                f"{self.name}: records of dtype {packed.dtype} and shape {packed.shape} are unsupported; return "
                "numbers, booleans or a structured dtype, with the records along the first dimension"
            )
        if packed.dtype.names is None:
            return packed
        from numpy.lib.recfunctions import repack_fields  # takes 8 ms, so it is not imported at the start

        return repack_fields(packed, recurse=True)


class WeighingMetric(RecordMetric):
    """A metric whose :meth:`value` is computed by :meth:`weighing`, which subclasses define."""

    @abstractmethod
    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; work that depends only on the records is done once."""

    def value(self, records: Array, weights: Array) -> float:
        """Return the primary metric; NaN if it is undefined."""
        return self.weighing(records)(weights)


class MeanMetric(RecordMetric):
    """The mean of one number per sample; subclasses define :meth:`records` (N numbers or booleans) and a name."""

    per_sample: ClassVar[bool] = True

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(np.dot(weights, records.astype(np.float64, copy=False)) / total) if total else math.nan

    def compute(self) -> float:
        """Return the mean with an exactly rounded sum (``math.fsum``), which does not depend on the order."""
        values = self._all().astype(np.float64)
        try:
            return math.fsum(values.tolist()) / len(values)
        except OverflowError:  # in the sum, although the mean may be finite
            return math.ldexp(math.fsum(np.ldexp(values, -64).tolist()) / len(values), 64)
        except ValueError:  # infinities of both signs
            return math.nan

    def _packed(self, values: Any) -> Array:
        packed = super()._packed(values)
        if packed.ndim != 1 or packed.dtype.kind not in "biuf":
            raise InputError(
                f"{self.name}: records of dtype {packed.dtype} and shape {packed.shape}; expected one number each"
            )
        return packed


def weighted_share(right: Array, weights: Array) -> float:
    """Return the weight of right samples over the weight of all; NaN if all weights are 0."""
    total = float(weights.sum())
    return float(weights[right].sum()) / total if total else math.nan


def mean_or_nan(values: Sequence[float]) -> float:
    """Return the mean with an exactly rounded sum; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def _measure_the_same(one: Metric, other: Metric) -> bool:
    """Return whether two metrics have the same class, name and options (unless these are not plain values)."""
    if type(one) is not type(other) or one.name != other.name:
        return False
    from utils.metrics.arguments import plain_arguments

    try:
        return plain_arguments(type(one), *one._arguments) == plain_arguments(type(other), *other._arguments)
    except ConfigError:
        return True


def _are_positions(samples: Array, count: int) -> bool:
    """Return whether these are integers in [0, count); an empty array of any dtype is valid."""
    if not samples.size:
        return True
    return bool(samples.dtype.kind in "iu" and samples.ndim == 1 and samples.min() >= 0 and samples.max() < count)


def _plain(dtype: np.dtype[Any]) -> bool:
    return not dtype.hasobject and (dtype.names is not None or dtype.kind in "biufc")


def in_order_of_bytes(values: Array) -> Array:
    """Return the records sorted by their bytes, an order independent of how they were added."""
    size = values.dtype.itemsize * math.prod(values.shape[1:])
    if len(values) < 2 or not size:
        return values
    keys = np.frombuffer(values.tobytes(), f"u{size}" if size in (1, 2, 4, 8) else f"S{size}")
    return values[np.argsort(keys, kind="stable")]
