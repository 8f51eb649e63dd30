"""Samples whose predictions a less exact mode may change: their margin is not above the deviation of both runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from utils.pipeline.resume.records import SampleRecords

MOST = 0.95
"""Share of the samples whose margins deviate by at most the deviation that is compared with."""


def at_risk(fast: Path, exact: Path) -> dict[str, Any] | None:
    """Return the samples at risk by the margins in two records files.

    Args:
        fast, exact: files of both runs over the same samples.

    Returns:
        ``deviation``: that of :data:`MOST` of the samples, in the unit of the margins. ``samples``: names of those
        whose margin in the exact run is at most as large, the smallest first; none if all outputs are equal. ``None``
        without margins.
    """
    ours, theirs = _margins(fast), _margins(exact)
    names = [name for name in theirs if name in ours]
    margins = np.array([(ours[name], theirs[name]) for name in names]).reshape(-1, 2)
    finite = np.isfinite(margins).all(axis=1)
    if not finite.any():
        return None
    deviation = float(np.quantile(np.abs(margins[finite, 0] - margins[finite, 1]), MOST))
    sizes = np.abs(margins[:, 1])
    order = np.argsort(sizes, kind="stable")
    near = order[(finite & (sizes <= deviation) & (deviation > 0))[order]]
    return {"deviation": deviation, "samples": [names[place] for place in near.tolist()]}


def _margins(path: Path) -> dict[str, float]:
    """Return the margin of each sample that was run, by name."""
    if path.suffix == ".npz":
        from utils.pipeline.resume.records.arrays import read_arrays

        columns = read_arrays(path)
        found = [] if columns.margins is None else columns.margins.tolist()
        return dict(zip(columns.names, found, strict=False))
    return {row.name: math.nan if row.margin is None else row.margin for row in SampleRecords(path)}
