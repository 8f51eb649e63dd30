"""Comparison of an exported file with the source model: the output that differs most, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array

FORMULA = "max|a - b| / max|b|"
"""Relative error of output ``a`` of the file to output ``b`` of the source model; the maximum over all outputs."""

TOLERANCES = {"float32": 1e-3, "float16": 5e-2}
"""Maximum relative error of a file, by dtype."""

_HALF = np.finfo(np.float16)


class Gap(NamedTuple):
    """The output with the largest relative error, that error, and the reason if known."""

    name: str
    error: float
    reason: str = ""


def relative_error(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """Return the maximum over the outputs of max|a - b| / max|b|, computed in float64.

    Elements that are the same infinity or both NaN agree. Any other infinity or NaN, and another number or shape of
    outputs, gives infinity. If ``b`` is all zero, the error is 0 if ``a`` is all zero too, else infinity.
    """
    if [a.shape for a in got] != [b.shape for b in wanted]:
        return float("inf")
    return max((_output_error(a, b) for a, b in zip(got, wanted, strict=True)), default=0.0)


def _output_error(got: Array, wanted: Array) -> float:
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(a - b))
    largest = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    scale = _largest(b)
    if largest == 0.0:
        return 0.0
    return largest / scale if scale else float("inf")


def _largest(array: Array) -> float:
    """Return the largest finite magnitude."""
    magnitudes = np.abs(array.astype(np.float64))
    return float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0))


def widest_gap(names: Sequence[str], got: Sequence[Array], wanted: Sequence[Array], dtype: str) -> Gap:
    """Return the output of the file (``got``) that differs most from the source model's (``wanted``); one name each."""
    if not (len(names) == len(got) == len(wanted)):
        return Gap("", float("inf"), f"there are {len(got)} outputs, the source model has {len(wanted)}")
    worst = Gap("", 0.0)
    for name, a, b in zip(names, got, wanted, strict=True):
        error = relative_error([a], [b])
        if error > worst.error or not worst.name:
            worst = Gap(name, error, _reason(a, b, dtype))
    return worst


def _reason(got: Array, wanted: Array, dtype: str) -> str:
    """Return why an output differs, or an empty string if its values do not show it."""
    if got.shape != wanted.shape:
        return f"its shape is {list(got.shape)}, the source model's {list(wanted.shape)}"
    if dtype == "float16" and np.issubdtype(wanted.dtype, np.floating):
        largest = _largest(wanted)
        if 0 < largest < float(_HALF.smallest_normal):
            smallest = float(_HALF.smallest_normal)
            return f"below float16: its largest value is {largest:.1e}, float16 keeps its digits from {smallest:.1e} on"
        if largest > float(_HALF.max):
            return f"above float16: its largest value is {largest:.1e}, float16 ends at {float(_HALF.max):.0f}"
    if np.isnan(got.astype(np.float64)).sum() > np.isnan(wanted.astype(np.float64)).sum():
        return "it has NaN where the source model's output has none"
    return ""
