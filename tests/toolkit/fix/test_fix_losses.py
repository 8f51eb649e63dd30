"""Losses of samples for all kinds of metrics, and sizes of the calls over a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from foreign_task import TagErrorRate

from engine import ConfigError, DataError, TensorSpec
from toolkit.fix.columns import Columns, joined, losses, paired
from toolkit.fix.records import Feed
from toolkit.fix.samples import sizes_of
from utils.metrics.base import RecordMetric, Records

Array = np.ndarray


def test_sizes_of_calls_become_sizes_of_symbols() -> None:
    spec = TensorSpec("x", np.dtype(np.int64), (None, None), 0, ("n", "words"))
    assert sizes_of([((4, 8),), ((3, 8),)], [spec], 4) == (((4, 8),), {})
    assert sizes_of([((4, 8),), ((3, 12),), ((4, 8),)], [spec], 4) == (((4, None),), {"words": (8, 12)})
    with pytest.raises(ConfigError, match=r"30 sizes.*--dim words=16,28,30"):
        sizes_of([((4, size),) for size in range(1, 31)], [spec], 4)
    with pytest.raises(DataError, match=r"dimension 1 .*8 to 9"):
        sizes_of([((4, 8),), ((4, 9),)], [replace(spec, symbols=("n", None))], 4)


class Ranking(RecordMetric):
    """Share of pairs in the right order: undefined for one record."""

    name = "ranking"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Array:
        return np.stack([np.asarray(predictions, float), np.asarray(targets, float)], axis=1)

    def value(self, records: Any, weights: Any) -> float:
        score, right = records[:, 0], records[:, 1]
        pairs = (right[:, None] > right) * weights[:, None] * weights
        return float((pairs * (score[:, None] > score)).sum() / pairs.sum()) if pairs.any() else float("nan")


def parts(*runs: Records, units: str = "") -> Columns:
    """Return the columns of parts of two samples."""
    feeds = [Feed([], None, ["x", "y"], list(units[2 * i : 2 * i + 2]) or None) for i in range(len(runs))]
    return joined(zip(feeds, runs, strict=True))


def test_margins_are_kept() -> None:
    one, other = (Records(np.array([1.0, 0]), margins=np.array([0.5, -2.0])) for _ in range(2))
    moved = Records(np.array([1.0, 1]), margins=np.array([0.25, 1.0]))
    pairs = paired(parts(one, moved), parts(one, other), "top1")
    assert pairs.margins is not None
    assert [run.tolist() for run in pairs.margins] == [[0.5, -2, 0.25, 1], [0.5, -2, 0.5, -2]]
    assert pairs.changed.tolist() == [False, False, False, True]
    assert pairs.sample_units.tolist() == [0, 1, 2, 3]
    grouped = paired(parts(one, moved, units="abba"), parts(one, other, units="abba"), "top1")
    assert grouped.sample_units.tolist() == [0, 1, 1, 0]
    assert grouped.changed.tolist() == [False, False, False, True]
    assert paired(parts(one, Records(np.ones(2))), parts(one, other), "top1").margins is None
    unknown = Records(np.ones(2), margins=np.array([np.nan, 1]))
    assert paired(parts(one, unknown), parts(one, other), "top1").margins is None


def test_margins_of_several_records_per_sample() -> None:
    margins = np.array([0.5, 2.0])
    one = Records(np.array([1.0, 0, 2]), np.array([0, 0, 0]), ["a", "b", "b"], margins)
    other = Records(np.array([1.0, 0, 3]), np.array([0, 0, 1]), ["a", "b", "c"], margins)
    pairs = paired(parts(one), parts(other), "ratio")
    assert pairs.changed.tolist() == [True, True]
    assert pairs.sample_units.tolist() == [1, 2]
    silent = paired(parts(one), parts(one), "ratio")
    assert silent.sample_units.tolist() == [1, 3]


def test_losses_per_sample_unit_or_exchange() -> None:
    kinds = np.dtype([("errors", np.int64), ("tags", np.int64)])

    def tags(*errors: int) -> Columns:
        rows = np.array([(error, 3) for error in errors], kinds)
        return Columns(rows, np.array([0, 0, 1, 2]), 3, ["a", "a", "b", "b"])

    lost = losses(TagErrorRate(), tags(1, 3, 0, 2), tags(0, 1, 1, 2))
    assert lost.tolist() == pytest.approx([3 / 6, -1 / 3, 0])

    right = np.array([0.0, 1, 2, 0, 1, 2])

    def ranks(scores: list[float], units: list[str] | None) -> Columns:
        return Columns(np.stack([np.array(scores), right], axis=1), np.arange(6), 6, None, units)

    before, after = [0.0, 1, 2, 0, 1, 2], [0.0, 1, 2, 2, 1, 0]
    by_unit = losses(Ranking(), ranks(after, ["q"] * 3 + ["r"] * 3), ranks(before, ["q"] * 3 + ["r"] * 3))
    assert by_unit.tolist() == [0, 0, 0, 1, 1, 1]
    by_exchange = losses(Ranking(), ranks(after, None), ranks(before, None))
    assert by_exchange[4] == 0
    assert min(by_exchange[3], by_exchange[5]) > 0
    assert not by_exchange[:3].any()
