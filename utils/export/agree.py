"""Whether a file answers as the source model does: which output differs, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array

FORMULA = "max|a - b| / max|b|"
"""The relative error: ``a`` is the file's output, ``b`` the source model's; the largest over all outputs counts."""

TOLERANCES = {"float32": 1e-3, "float16": 5e-2}
"""Largest relative error a file may have, per precision."""

_HALF = np.finfo(np.float16)


class Gap(NamedTuple):
    """The output that differs most, its relative error, and the reason where one is known."""

    name: str
    error: float
    reason: str = ""


def relative_error(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """Return max|a - b| / max|b|, the largest over the outputs, in float64.

    Places where both hold the same infinity or both hold NaN agree; any other infinity or NaN gives infinity, and so
    does a different number or shape of outputs. Where ``b`` is all zero, the error is 0 if ``a`` is too, else infinity.
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
    """Return the output that differs most.

    Args:
        names: of the outputs. got: the file's. wanted: the source model's.
        dtype: the file's precision, ``float32`` or ``float16``.
    """
    if not (len(names) == len(got) == len(wanted)):
        return Gap("", float("inf"), f"there are {len(got)} outputs, the source model has {len(wanted)}")
    worst = Gap("", 0.0)
    for name, a, b in zip(names, got, wanted, strict=True):
        error = relative_error([a], [b])
        if error > worst.error or not worst.name:
            worst = Gap(name, error, _reason(a, b, dtype))
    return worst


def _reason(got: Array, wanted: Array, dtype: str) -> str:
    """Say why an output differs where its numbers show it; empty where they do not."""
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
        return "it holds NaN where the source model's does not"
    return ""
