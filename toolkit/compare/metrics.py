"""How far a tensor is from its reference. Everything is accumulated in float64."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from engine.base import Array

THRESHOLD = {"float32": 1e-6, "float16": 1e-4}
"""Reference magnitude up to which diff3 is the absolute error, by the precision that is judged."""

HALF_MAX = 65504.0
_CHUNK = 2**13
"""Elements per step: float64 copies of so many stay in a core's cache, and below what malloc maps afresh each time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor ``a`` against its reference ``b``.

    Attributes:
        cosine: of the angle between both; 1 where both are zero, 0 where one is, NaN with a mismatch.
        diff1: sum|a-b| / sum|b|. diff2: sqrt(sum (a-b)^2 / sum b^2). Against a reference of nothing but zeros they are
            0 for equal tensors and infinite otherwise.
        diff3_max, diff3_mean: over |a-b| / |b| where |b| is above the threshold, and |a-b| elsewhere.
        mismatched: elements that are NaN or infinite in one and not the same in the other; with any, the differences
            are infinite. Where both hold the same NaN or infinity, the element counts as equal.
    """

    cosine: float
    diff1: float
    diff2: float
    diff3_max: float
    diff3_mean: float
    mismatched: int


@dataclass(frozen=True, slots=True)
class Census:
    """What a tensor holds.

    Attributes:
        minimum, maximum: of the finite elements; NaN where there is none.
        nan, infinite: how many. saturated: finite elements at the largest magnitude of the storage.
        flushed: zeros where the reference is none.
    """

    minimum: float
    maximum: float
    nan: int
    infinite: int
    saturated: int
    flushed: int


class _Sums:
    """What one pass over both tensors gathers."""

    def __init__(self, threshold: float, top: float) -> None:
        self.threshold, self.top = threshold, top
        self.l1 = self.l1_reference = self.l2 = self.l2_reference = self.l2_value = self.dot = 0.0
        self.relative = self.relative_max = 0.0
        self.count = self.mismatched = self.nan = self.infinite = self.saturated = self.flushed = 0
        self.minimum, self.maximum = inf, -inf

    def add(self, value: Array, reference: Array) -> None:
        """Take in a part of both, in float64."""
        self.count += value.size
        self.flushed += int(np.count_nonzero((value == 0) & (reference != 0)))
        error = value - reference
        if not np.isfinite(error.sum()):
            value, reference = self._finite(value, reference)
            error = value - reference
        if not value.size:
            return
        self._range(value)
        np.abs(error, out=error)
        magnitude = np.abs(reference)
        self.l1 += float(error.sum())
        self.l1_reference += float(magnitude.sum())
        self.l2 += float(np.dot(error, error))
        self.l2_reference += float(np.dot(reference, reference))
        self.l2_value += float(np.dot(value, value))
        self.dot += float(np.dot(value, reference))
        np.divide(error, magnitude, out=error, where=magnitude > self.threshold)
        self.relative += float(error.sum())
        self.relative_max = max(self.relative_max, float(error.max()))

    def _finite(self, value: Array, reference: Array) -> tuple[Array, Array]:
        """Count what is not finite; return the elements that are in both."""
        good_value, good_reference = np.isfinite(value), np.isfinite(reference)
        self.nan += int(np.count_nonzero(np.isnan(value)))
        self.infinite += int(np.count_nonzero(np.isinf(value)))
        same = (value == reference) | (np.isnan(value) & np.isnan(reference))
        good = good_value & good_reference
        self.mismatched += int(np.count_nonzero(~good & ~same))
        alone = value[good_value & ~good_reference]
        if alone.size:
            self._range(alone)
        return value[good], reference[good]

    def _range(self, value: Array) -> None:
        low, high = float(value.min()), float(value.max())
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        if max(-low, high) >= self.top:
            self.saturated += int(np.count_nonzero(np.abs(value) >= self.top))


def measure(value: Array, reference: Array, threshold: float, half: bool) -> tuple[Difference, Census]:
    """Compare a tensor with its reference, and count what it holds, in one pass.

    Args:
        value, reference: arrays of one shape, of any dtype numpy can turn into float64.
        threshold: see :data:`THRESHOLD`.
        half: whether the value is stored as float16, where magnitudes end at 65504.
    """
    kind = value.dtype if value.dtype.kind == "f" else np.dtype(np.float64)
    sums = _Sums(threshold, HALF_MAX if half else float(np.finfo(kind).max))
    flat, wanted = value.reshape(-1), reference.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            sums.add(flat[part].astype(np.float64), wanted[part].astype(np.float64))
    empty = sums.minimum > sums.maximum
    census = Census(
        nan if empty else sums.minimum,
        nan if empty else sums.maximum,
        sums.nan,
        sums.infinite,
        sums.saturated,
        sums.flushed,
    )
    return _difference(sums), census


def _difference(sums: _Sums) -> Difference:
    if sums.mismatched:
        return Difference(nan, inf, inf, inf, inf, sums.mismatched)
    return Difference(
        _cosine(sums),
        _ratio(sums.l1, sums.l1_reference),
        sqrt(_ratio(sums.l2, sums.l2_reference)),
        sums.relative_max,
        sums.relative / sums.count if sums.count else 0.0,
        0,
    )


def _cosine(sums: _Sums) -> float:
    if not sums.l2_value or not sums.l2_reference:
        return 1.0 if sums.l2_value == sums.l2_reference else 0.0
    return min(1.0, max(-1.0, sums.dot / sqrt(sums.l2_value) / sqrt(sums.l2_reference)))


def _ratio(error: float, reference: float) -> float:
    if not reference:
        return inf if error else 0.0
    return error / reference
