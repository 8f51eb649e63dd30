"""Differences between a tensor and its reference, accumulated in float64.

Finite float32 tensors are compared by the C extension where it is used (:mod:`tecoinfer_modelzoo.native`), in one pass;
all others by NumPy. Both give the same figures up to the order of summation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite, nan, sqrt

import numpy as np

from engine.base import Array
from tecoinfer_modelzoo import native

THRESHOLD = {"float32": 1e-6, "float16": 1e-4}
"""Reference magnitude up to which diff3 is the absolute error, by the :func:`precision_of` both tensors."""

HALF_MAX = 65504.0
_FLOAT_MAX = float(np.finfo(np.float32).max)
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

    def add_figures(self, figures: Sequence[float], count: int) -> None:
        """Add the sums that the C extension has found over ``count`` elements."""
        squares, l1, l1_reference, l2_reference, l2_value, dot, relative, relative_max = figures[:8]
        self.count += count
        self.l2 += squares
        self.l1 += l1
        self.l1_reference += l1_reference
        self.l2_reference += l2_reference
        self.l2_value += l2_value
        self.dot += dot
        self.relative += relative
        self.relative_max = max(self.relative_max, relative_max)

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
    """Compare tensors with one reference of their shape; all convert to float64. See :data:`THRESHOLD`."""
    sums = [_Sums(threshold) for _ in values]
    rest = []
    for one, value in zip(sums, values, strict=True):
        figures = _figures(value, reference, threshold)
        if figures is None:
            rest.append((one, value.reshape(-1)))
        else:
            one.add_figures(figures, value.size)
    if rest:
        _add_in_parts(rest, reference, threshold)
    return [one.difference() for one in sums]


def _add_in_parts(values: Sequence[tuple[_Sums, Array]], reference: Array, threshold: float) -> None:
    """Add flat tensors to their sums with NumPy, in one pass over the reference."""
    with np.errstate(invalid="ignore", over="ignore"):
        for part, wanted in _parts(reference.reshape(-1)):
            shared = _Wanted(wanted.astype(np.float64), threshold)
            for one, value in values:
                one.add(value[part].astype(np.float64), shared)


def _figures(value: Array, reference: Array, threshold: float, top: float = _FLOAT_MAX) -> tuple[float, ...] | None:
    """Return the figures of the C extension; ``None`` if it is not used, or a tensor is not finite float32."""
    if value.dtype != np.float32 or reference.dtype != np.float32 or not value.size:
        return None
    extension = native.sums()
    if extension is None or not (value.flags.c_contiguous and reference.flags.c_contiguous):
        return None
    found: tuple[float, ...] | None = extension.compare(value, reference, threshold, top, _level())
    return found


@cache
def _level() -> int:
    extension = native.sums()
    return 0 if extension is None else extension.level()


def _parts(array: Array) -> Iterator[tuple[slice, Array]]:
    for start in range(0, array.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        yield part, array[part]


class _Values:
    """Statistics of a tensor's values, gathered in parts."""

    __slots__ = ("flushed", "high", "infinite", "low", "nan", "saturated")

    def __init__(self) -> None:
        self.low, self.high = inf, -inf
        self.nan = self.infinite = self.saturated = self.flushed = 0

    def add(self, value: Array, top: float) -> None:
        """Add range and counts of an array; finite magnitudes from ``top`` on are saturated."""
        for _, found in _parts(value.reshape(-1)):
            least, most = float(found.min()), float(found.max())
            if not isfinite(least) or not isfinite(most):
                self.nan += int(np.count_nonzero(np.isnan(found)))
                self.infinite += int(np.count_nonzero(np.isinf(found)))
                found = found[np.isfinite(found)]
                if not found.size:
                    continue
                least, most = float(found.min()), float(found.max())
            self.low, self.high = min(self.low, least), max(self.high, most)
            if max(-least, most) >= top:
                self.saturated += int(np.count_nonzero(np.abs(found) >= top))

    def add_flushed(self, value: Array, reference: Array) -> None:
        """Count the zeros of an array where the reference is not zero."""
        flat = value.reshape(-1)
        for part, wanted in _parts(reference.reshape(-1)):
            zero = flat[part] == 0
            zero &= wanted != 0
            self.flushed += int(np.count_nonzero(zero))

    def stats(self) -> ValueStats:
        empty = self.low > self.high
        low, high = (nan, nan) if empty else (self.low, self.high)
        return ValueStats(low, high, self.nan, self.infinite, self.saturated, self.flushed)


def value_stats(value: Array, reference: Array, half: bool) -> ValueStats:
    """Return statistics of a tensor's values; ``half``: it is stored as float16, whose largest magnitude is 65504."""
    found = _Values()
    found.add(value, _top(value, half))
    found.add_flushed(value, reference)
    return found.stats()


def _top(value: Array, half: bool) -> float:
    """Return the largest magnitude of the dtype in which a tensor is stored."""
    return HALF_MAX if half else float(np.finfo(value.dtype if value.dtype.kind == "f" else np.float64).max)


class Measured:
    """Difference and statistics of a tensor and its reference, over the calls of a run.

    Args:
        threshold: see :data:`THRESHOLD`. half: the tensor is stored as float16.
    """

    __slots__ = ("_half", "_reference", "_sums", "_value")

    def __init__(self, threshold: float, half: bool = False) -> None:
        self._half = half
        self._sums, self._value, self._reference = _Sums(threshold), _Values(), _Values()

    def add(self, value: Array, reference: Array) -> None:
        """Add the tensor of a call and its reference of the same shape."""
        top = _top(value, self._half)
        figures = _figures(value, reference, self._sums.threshold, top)
        if figures is None:
            _add_in_parts([(self._sums, value.reshape(-1))], reference, self._sums.threshold)
            self._value.add(value, top)
            self._value.add_flushed(value, reference)
            self._reference.add(reference, inf)
            return
        self._sums.add_figures(figures, value.size)
        low, high, reference_low, reference_high, saturated, flushed = figures[8:]
        for held, least, most in ((self._value, low, high), (self._reference, reference_low, reference_high)):
            held.low, held.high = min(held.low, least), max(held.high, most)
        self._value.saturated += int(saturated)
        self._value.flushed += int(flushed)

    @property
    def difference(self) -> Difference:
        """Difference of the tensor from its reference."""
        return self._sums.difference()

    @property
    def value(self) -> ValueStats:
        """Statistics of the tensor."""
        return self._value.stats()

    @property
    def reference(self) -> ValueStats:
        """Range of the reference, and its number of NaN and infinities."""
        return self._reference.stats()


def measure(value: Array, reference: Array, threshold: float, half: bool) -> tuple[Difference, ValueStats]:
    """Return the difference of a tensor from its reference, and statistics of its values (:class:`Measured`)."""
    found = Measured(threshold, half)
    found.add(value, reference)
    return found.difference, found.value
