"""The samples whose records differ between two runs, those with the largest effect on the metric first."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.metrics.base import Metric
from utils.pipeline.resume.records import SampleRecords
from utils.pipeline.resume.records.arrays import RecordArrays, read_arrays

CANDIDATES = 200
"""Differing samples whose effect on the metric is computed, those whose records moved most."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


def differing(target: Path, baseline: Path, metric: Metric | None, most: int) -> list[tuple[int, str]]:
    """Return index and name of the samples that both runs evaluated with other records, at most ``most``.

    They are ordered by the change of the metric when the records of one sample alone are taken from the target and all
    others from the baseline; without a metric, by the change of the records.

    Args:
        target, baseline: records files of both runs. metric: the metric of the records.

    Raises:
        DataError: a file cannot be read, or they are not of the same samples.
    """
    both = _columns(target), _columns(baseline)
    if not np.array_equal(both[0].index, both[1].index) or both[0].names != both[1].names:
        raise DataError(f"{target} and {baseline} are not of the same samples; run both on the same data")
    spans = [np.searchsorted(one.sample, np.arange(len(one.index) + 1)) for one in both]
    ran = np.flatnonzero(both[0].ran & both[1].ran).tolist()
    parts = {place: [slice(ends[place], ends[place + 1]) for ends in spans] for place in ran}
    moved = {place: _moved(both, parts[place]) for place in ran}
    changed = sorted((place for place in ran if moved[place] > 0), key=lambda place: -moved[place])[:CANDIDATES]
    if metric is not None and changed:
        effect = _effects(both, metric)
        effects = {place: effect(*parts[place]) for place in changed}
        changed.sort(key=lambda place: -effects[place])
    return [(int(both[0].index[place]), both[0].names[place]) for place in changed[:most]]


def _columns(path: Path) -> RecordArrays:
    """Return the columns of a records file of either kind."""
    if path.suffix == ".npz":
        return read_arrays(path)
    rows = SampleRecords(path)
    samples = list(rows)
    ran = np.array([one.value is not None for one in samples], np.bool_)
    return RecordArrays(
        rows.metric_name,
        np.array([one.index for one in samples], np.int64),
        [one.name for one in samples],
        ran,
        np.array([one.value for one in samples if one.value is not None], np.float64),
        np.flatnonzero(ran),
    )


def _moved(both: tuple[RecordArrays, RecordArrays], parts: list[slice]) -> float:
    """Return how far a sample's records moved: 0 if they are equal, infinite if there are more or fewer of them."""
    ours, theirs = (one.values[part] for one, part in zip(both, parts, strict=True))
    if ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes():
        return 0.0
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    return max(_distance(ours, theirs), float(np.finfo(np.float64).tiny))


def _distance(ours: Array, theirs: Array) -> float:
    """Return the sum of the absolute differences of all numbers, infinite if one is not a number."""
    if ours.dtype.names is not None:
        return sum(_distance(ours[name], theirs[name]) for name in ours.dtype.names)
    if ours.dtype.kind not in "biuf":
        return 0.0
    with np.errstate(all="ignore"):
        total = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).sum())
    return math.inf if math.isnan(total) else total


def _effects(both: tuple[RecordArrays, RecordArrays], metric: Metric) -> Callable[[slice, slice], float]:
    """Return the function from the records of a sample in both runs to its effect on the metric, at least 0."""
    ours, theirs = (one.values for one in both)
    value = metric.weighing(np.concatenate([theirs, ours]))
    weights = np.concatenate([np.ones(len(theirs)), np.zeros(len(ours))])

    def number(weights: Floats) -> float:
        try:
            with np.errstate(all="ignore"):
                return float(value(weights))
        except (ArithmeticError, ValueError):  # no value for these weights
            return math.nan

    start = number(weights)

    def effect(target: slice, baseline: slice) -> float:
        swapped = weights.copy()
        swapped[baseline] = 0
        swapped[len(theirs) + target.start : len(theirs) + target.stop] = 1
        change = abs(number(swapped) - start)
        return math.inf if math.isnan(change) else change

    return effect
