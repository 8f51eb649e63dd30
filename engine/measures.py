"""Differences between a tensor and its reference, accumulated in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt

import numpy as np

from engine.base import Array

THRESHOLD = {"float32": 1e-6, "float16": 1e-4}
"""Reference magnitude up to which diff3 is the absolute error, by the :func:`precision_of` both tensors."""

HALF_MAX = 65504.0
_CHUNK = 2**13  # elements per step: their float64 copies fit in a core's cache and in memory that malloc reuses


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor ``a`` compared with its reference ``b``; against zeros diff1 and diff2 are 0 if equal, else infinite.

    ``mismatched`` elements are NaN or infinite in one tensor and not the same in the other; with any, differences are
    infinite. The same NaN or infinity in both counts as equal.
    """

    cosine: float  # of the angle between both; 1 if both are zero, 0 if one is, NaN with a mismatch
    diff1: float  # sum|a-b| / sum|b|
    diff2: float  # sqrt(sum (a-b)^2 / sum b^2)
    diff3_max: float  # maximum of |a-b| / |b| where |b| is above the threshold, and |a-b| elsewhere
    diff3_mean: float  # mean of the same
    mismatched: int


OTHER_SHAPE = Difference(nan, inf, inf, inf, inf, 0)
"""Difference of tensors of different shapes, such as detected boxes or the output of NonZero."""


@dataclass(frozen=True, slots=True)
class ValueStats:
    """Statistics of a tensor's values."""

    minimum: float  # of the finite elements; NaN if there are none
    maximum: float  # of the finite elements; NaN if there are none
    nan: int  # number of elements
    infinite: int  # number of elements
    saturated: int  # finite elements at the largest magnitude of the storage dtype
    flushed: int  # zeros where the reference is not zero


class _Wanted:
    """A part of a reference with the sums that every comparison with it needs."""

    __slots__ = ("divisor", "l1", "l2", "values")

    def __init__(self, values: Array, threshold: float) -> None:
        self.values = values
        self.divisor = np.abs(values)
        self.l1 = float(self.divisor.sum())
        self.l2 = float(np.dot(values, values))
        np.putmask(self.divisor, self.divisor <= threshold, 1.0)  # twice as fast as copyto(where=...)


class _Sums:
    """Sums over a tensor and its reference, gathered in one pass."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.l1 = self.l1_reference = self.l2 = self.l2_reference = self.l2_value = self.dot = 0.0
        self.relative = self.relative_max = 0.0
        self.count = self.mismatched = 0

    def add(self, value: Array, wanted: _Wanted) -> None:
        """Add a part of both, in float64."""
        self.count += value.size
        error = value - wanted.values
        squares = float(np.dot(error, error))
        if not isfinite(squares):
            value, wanted = self._finite(value, wanted)
            error = value - wanted.values
            squares = float(np.dot(error, error))
        if not value.size:
            return
        self.l2 += squares
        self.l1_reference += wanted.l1
        self.l2_reference += wanted.l2
        self.l2_value += float(np.dot(value, value))
        self.dot += float(np.dot(value, wanted.values))
        np.abs(error, out=error)
        self.l1 += float(error.sum())
        np.divide(error, wanted.divisor, out=error)
        self.relative += float(error.sum())
        self.relative_max = max(self.relative_max, float(error.max()))

    def _finite(self, value: Array, wanted: _Wanted) -> tuple[Array, _Wanted]:
        """Count mismatched non-finite elements; return the elements that are finite in both."""
        reference = wanted.values
        good = np.isfinite(value) & np.isfinite(reference)
        same = (value == reference) | (np.isnan(value) & np.isnan(reference))
        self.mismatched += int(np.count_nonzero(~good & ~same))
        return value[good], _Wanted(reference[good], self.threshold)

    def difference(self) -> Difference:
        if self.mismatched:
            return Difference(nan, inf, inf, inf, inf, self.mismatched)
        return Difference(
            self._cosine(),
            _ratio(self.l1, self.l1_reference),
            sqrt(_ratio(self.l2, self.l2_reference)),
            self.relative_max,
            self.relative / self.count if self.count else 0.0,
            0,
        )

    def _cosine(self) -> float:
        if not self.l2_value or not self.l2_reference:
            return 1.0 if self.l2_value == self.l2_reference else 0.0
        return min(1.0, max(-1.0, self.dot / sqrt(self.l2_value) / sqrt(self.l2_reference)))


class RunningCosine:
    """The cosine between a tensor and its reference that arrive in parts, such as the calls of a run."""

    def __init__(self) -> None:
        self._sums = _Sums(0.0)

    def add(self, value: Array, reference: Array) -> None:
        """Add a part; one of another shape than its reference counts as zeros, so it lowers the cosine."""
        if value.shape != reference.shape:
            value = np.zeros_like(reference)
        flat = value.reshape(-1)
        with np.errstate(invalid="ignore", over="ignore"):
            for part, wanted in _parts(reference.reshape(-1)):
                self._sums.add(flat[part].astype(np.float64), _Wanted(wanted.astype(np.float64), 0.0))

    @property
    def cosine(self) -> float:
        """The cosine so far, -1 to 1; 0 with a NaN or an infinity in only one of both."""
        return 0.0 if self._sums.mismatched else self._sums.difference().cosine


def _ratio(error: float, reference: float) -> float:
    if not reference:
        return inf if error else 0.0
    return error / reference


def precision_of(*dtypes: str) -> str:
    """Return the precision to which engines can agree: ``float32`` if all compute in it, else ``float16``."""
    return "float32" if set(dtypes) <= {"float32"} else "float16"


def differences(values: Sequence[Array], reference: Array, threshold: float) -> list[Difference]:
    """Compare tensors with one reference of their shape, in one pass; all convert to float64. See :data:`THRESHOLD`."""
    sums = [_Sums(threshold) for _ in values]
    flat = [value.reshape(-1) for value in values]
    with np.errstate(invalid="ignore", over="ignore"):
        for part, wanted in _parts(reference.reshape(-1)):
            shared = _Wanted(wanted.astype(np.float64), threshold)
            for one, value in zip(sums, flat, strict=True):
                one.add(value[part].astype(np.float64), shared)
    return [one.difference() for one in sums]


def _parts(array: Array) -> Iterator[tuple[slice, Array]]:
    for start in range(0, array.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        yield part, array[part]


def value_stats(value: Array, reference: Array, half: bool) -> ValueStats:
    """Return statistics of a tensor's values; ``half``: it is stored as float16, whose largest magnitude is 65504."""
    kind = value.dtype if value.dtype.kind == "f" else np.dtype(np.float64)
    top = HALF_MAX if half else float(np.finfo(kind).max)
    low, high, nans, infinite, saturated, flushed = inf, -inf, 0, 0, 0, 0
    flat = value.reshape(-1)
    for part, wanted in _parts(reference.reshape(-1)):
        found = flat[part]
        zero = found == 0
        zero &= wanted != 0
        flushed += int(np.count_nonzero(zero))
        least, most = float(found.min()), float(found.max())
        if not isfinite(least) or not isfinite(most):
            nans += int(np.count_nonzero(np.isnan(found)))
            infinite += int(np.count_nonzero(np.isinf(found)))
            found = found[np.isfinite(found)]
            if not found.size:
                continue
            least, most = float(found.min()), float(found.max())
        low, high = min(low, least), max(high, most)
        if max(-least, most) >= top:
            saturated += int(np.count_nonzero(np.abs(found) >= top))
    empty = low > high
    return ValueStats(nan if empty else low, nan if empty else high, nans, infinite, saturated, flushed)


def measure(value: Array, reference: Array, threshold: float, half: bool) -> tuple[Difference, ValueStats]:
    """Return the difference of a tensor from its reference (:func:`differences`), and statistics of its values."""
    return differences([value], reference, threshold)[0], value_stats(value, reference, half)
