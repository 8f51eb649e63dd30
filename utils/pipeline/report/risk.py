"""Samples whose predictions a less exact mode may change: their margin is not above the deviation of both runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array
from utils.metrics.base import Metric
from utils.pipeline.resume.records import SampleRecords

MOST = 0.95
"""Share of the margins that deviate by at most the deviation that is compared with."""


def at_risk(fast: Path, exact: Path, metric: Metric | None = None) -> dict[str, Any] | None:
    """Return the samples at risk by the margins in two records files, or by those that follow from the records.

    Args:
        fast, exact: files of both runs over the same samples.
        metric: of the records; it computes their margins (:meth:`utils.metrics.base.Metric.gaps`) if none are stored.

    Returns:
        ``deviation``: that of :data:`MOST` of the margins, in their unit. ``samples``: names of those with a margin in
        the exact run that is at most as large, the smallest first; none if all outputs are equal. ``None`` without
        margins.
    """
    ours, theirs = _margins(fast), _margins(exact)
    names = [name for name in theirs if name in ours]
    margins = np.array([(ours[name], theirs[name]) for name in names]).reshape(-1, 2)
    if np.isfinite(margins).all(axis=1).any():
        return _near(names, margins[:, 0], margins[:, 1], np.arange(len(names)))
    return None if metric is None or exact.suffix != ".npz" else _by_records(fast, exact, metric)


def _near(names: Sequence[str], own: Array, other: Array, samples: Array) -> dict[str, Any] | None:
    """Return the samples at risk by margins in the faster run and in the exact one.

    Args:
        names: of all samples. own, other: N margins. samples: N, or N x R, the samples that each margin is of.
    """
    finite = np.isfinite(own) & np.isfinite(other)
    if not finite.any():
        return None
    deviation = float(np.quantile(np.abs(own[finite] - other[finite]), MOST))
    smallest = np.full(len(names), math.inf)
    for column in samples.reshape(len(samples), -1).T:
        np.minimum.at(smallest, column[finite], np.abs(other[finite]))
    order = np.argsort(smallest, kind="stable")
    near = order[(smallest[order] <= deviation) & (deviation > 0)]
    return {"deviation": deviation, "samples": [names[place] for place in near.tolist()]}


def _by_records(fast: Path, exact: Path, metric: Metric) -> dict[str, Any] | None:
    """Return the samples at risk by the margins that follow from the records of the samples that both ran."""
    from utils.pipeline.resume.records.arrays import read_arrays

    both = read_arrays(fast), read_arrays(exact)
    if both[0].names != both[1].names:
        return None
    ran = both[0].ran & both[1].ran
    target, baseline = (one.values[ran[one.sample]] for one in both)
    samples, others = (one.sample[ran[one.sample]] for one in reversed(both))
    if not np.array_equal(samples, others) or target.dtype != baseline.dtype or not len(samples):
        return None
    gaps = metric.gaps(target, baseline, samples)
    if gaps is None or gaps.places is None:
        return None
    return _near(both[1].names, gaps.target, gaps.baseline, samples[gaps.places])


def _margins(path: Path) -> dict[str, float]:
    """Return the margin of each sample that was run, by name."""
    if path.suffix == ".npz":
        from utils.pipeline.resume.records.arrays import read_arrays

        columns = read_arrays(path)
        found = [] if columns.margins is None else columns.margins.tolist()
        return dict(zip(columns.names, found, strict=False))
    return {row.name: math.nan if row.margin is None else row.margin for row in SampleRecords(path)}
