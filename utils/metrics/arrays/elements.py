"""Metrics of the elements of arrays: errors, cosine similarity, PSNR, and the share of equal samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.text import shape_text
from utils.metrics.base import MeanMetric, RecordMetric, Records

KINDS = ("rmse", "mae", "abs_rel")
"""Allowed primary metrics of :class:`ElementErrors`."""

MOST_DECIBELS = 100.0
"""PSNR of a sample with a smaller error, 0 among them."""


class ElementErrors(RecordMetric):
    """Errors of the elements of arrays; all elements of all samples have equal weights.

    - ``rmse``: the root of the mean squared error. ``mae``: the mean absolute error. Both in the unit of the output.
    - ``abs_rel``: the mean of ``|output - expected| / |expected|`` over elements with an expected value other than 0.
      In depth maps 0 means "not measured" (Eigen et al. 2014, "Depth Map Prediction from a Single Image", 4.2).

    They equal scikit-learn's ``root_mean_squared_error``, ``mean_absolute_error`` and
    ``mean_absolute_percentage_error`` of the flattened arrays.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the others are secondary figures.
    """

    higher_is_better = False

    def __init__(self, primary: str = "rmse") -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        self.name = self.primary = primary

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a row per sample, float64 [N, 5].

        The sum of squared errors, that of absolute errors, the number of elements, the sum of relative errors, and the
        number of elements whose expected value is not 0.

        Raises:
            DataError: a prediction and its target have different shapes.
        """
        rows = np.zeros((len(targets), 5))
        for row, one, right in zip(rows, predictions, targets, strict=True):
            found, wanted = same_shape(one, right, self.name)
            with np.errstate(over="ignore", invalid="ignore"):
                off = np.abs(found - wanted)
                known = wanted != 0
                relative = off[known] / np.abs(wanted[known])
                row[:] = (off**2).sum(), off.sum(), off.size, relative.sum(), relative.size
        return rows

    def value(self, records: Array, weights: Array) -> float:
        """Return the primary metric; NaN if no element counts."""
        squares, sums, count, relative, known = weights @ records
        if self.primary == "abs_rel":
            return float(relative / known) if known else math.nan
        total = squares if self.primary == "rmse" else sums
        mean = float(total / count) if count else math.nan
        return math.sqrt(mean) if self.primary == "rmse" else mean

    def unknown(self) -> str:
        """Return why the value is NaN."""
        return "all expected values are 0, so there is no relative error; use --metric mae"

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures; without ``abs_rel`` if all expected values are 0."""
        kept = self._all()
        found = {kind: ElementErrors(kind).value(kept, np.ones(len(kept))) for kind in KINDS if kind != self.primary}
        return {kind: value for kind, value in found.items() if not math.isnan(value)}


class Cosine(MeanMetric):
    """Mean over the samples of the cosine between output and expected array, both as one vector; -1 to 1.

    Two vectors of zeros have 1, a single one 0. The cosine does not change if the output is scaled by a positive
    factor.
    """

    name = "cosine"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return the cosine of each sample. Raises DataError if shapes differ."""
        pairs = zip(predictions, targets, strict=True)
        return np.array([_cosine(*same_shape(one, right, self.name)) for one, right in pairs], np.float64)


class Psnr(MeanMetric):
    """Mean over the samples of the peak signal-to-noise ratio ``10 log10(peak^2 / mean squared error)``, in dB.

    A sample's value equals scikit-image's ``peak_signal_noise_ratio(expected, output, data_range=peak)``, but is at
    most :data:`MOST_DECIBELS`, so that an image without an error does not make the mean infinite.

    Args:
        peak: the difference between the largest and the smallest possible value: 1, or 255 for 8 bits; above 0.
    """

    name = "psnr"

    def __init__(self, peak: float = 1.0) -> None:
        if not 0 < peak < math.inf:
            raise ConfigError(f"peak {peak} must be above 0: 1 for images of 0 to 1, 255 for those of 8 bits")
        self.peak = peak

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return the ratio of each sample. Raises DataError if shapes differ."""
        pairs = zip(predictions, targets, strict=True)
        return np.array([self._ratio(*same_shape(one, right, self.name)) for one, right in pairs], np.float64)

    def _ratio(self, found: Array, wanted: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            error = float(((found - wanted) ** 2).mean()) if found.size else 0.0
        if math.isnan(error):
            return math.nan
        ratio = 10 * math.log10(self.peak**2 / error) if 0 < error < math.inf else math.inf if not error else -math.inf
        return min(ratio, MOST_DECIBELS)


class Equal(MeanMetric):
    """Share of samples, 0 to 1, whose outputs all equal the expected arrays.

    Arrays of integers and booleans must be equal. For floats the relative error of a sample,
    ``max|output - expected| / max|expected|`` as in :mod:`utils.export.agree`, must be at most ``tolerance``; its
    margin is the tolerance minus this error. Equal infinities agree; NaN never does.

    Args:
        tolerance: largest relative error of floats, 0 or more; the default is that of a float16 export.
    """

    name = "equal"
    has_margins: ClassVar[bool] = True
    bounds = (0.0, 1.0)

    def __init__(self, tolerance: float = 0.05) -> None:
        if not 0 <= tolerance < math.inf:
            raise ConfigError(f"tolerance {tolerance} must be at least 0; 0.01 allows 1 % of the largest value")
        self.tolerance = tolerance

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return whether each sample is equal, and its margin.

        Args:
            predictions, targets: per sample an array, or a list of arrays.

        Raises:
            DataError: a prediction and its target have different shapes.
        """
        errors = np.array([self._error(*pair) for pair in zip(predictions, targets, strict=True)], np.float64)
        return Records(errors <= self.tolerance, margins=self.tolerance - errors)

    def _error(self, one: Any, right: Any) -> float:
        """Return the largest relative error of a sample's arrays; infinity if integers differ."""
        ours, theirs = ([each] if isinstance(each, np.ndarray) else list(each) for each in (one, right))
        return max((self._of_array(*pair) for pair in zip(ours, theirs, strict=True)), default=0.0)

    def _of_array(self, one: Array, right: Array) -> float:
        found, wanted = same_shape(one, right, self.name)
        if np.asarray(right).dtype.kind != "f":
            return 0.0 if np.array_equal(found, wanted) else math.inf
        with np.errstate(invalid="ignore"):
            gaps = np.where(found == wanted, 0.0, np.abs(found - wanted))
        largest = float(np.where(np.isnan(gaps), math.inf, gaps).max(initial=0.0))
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        return largest / scale if scale else math.inf if largest else 0.0


def same_shape(one: Any, right: Any, name: str) -> tuple[Array, Array]:
    """Return a prediction and its target in float64 and in one shape.

    Axes of length 1 are ignored, and a flat target (of a table) takes the shape of a prediction with as many elements.
    Raises DataError if the shapes differ otherwise.
    """
    found, wanted = np.asarray(one, np.float64), np.asarray(right, np.float64)
    if found.shape == wanted.shape:
        return found, wanted
    if found.size == wanted.size and (wanted.ndim <= 1 or _long_axes(found) == _long_axes(wanted)):
        return found, wanted.reshape(found.shape)
    raise DataError(
        f"{name}: the output of a sample has shape {shape_text(found.shape)} and its expected array "
        f"{shape_text(wanted.shape)}; give expected arrays of the output's shape, or another --metric"
    )


def _long_axes(array: Array) -> list[int]:
    return [size for size in array.shape if size != 1]


def _cosine(found: Array, wanted: Array) -> float:
    one, other = found.ravel(), wanted.ravel()
    scales = [float(np.abs(vector).max(initial=0.0)) for vector in (one, other)]
    if not any(scales):
        return 1.0
    if not all(scales):
        return 0.0
    one, other = one / scales[0], other / scales[1]  # prevents overflow
    with np.errstate(invalid="ignore"):
        return float(np.dot(one, other) / math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other))))
