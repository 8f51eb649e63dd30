"""Tests of the choice of the samples whose records differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import DataError
from model_config.run import differing as module
from model_config.run.differing import differing
from utils.datasets.base import Batch
from utils.metrics import Metric, TopK
from utils.metrics.base import RecordMetric, Records
from utils.pipeline.resume.records import record_writer, records_path


class Rate(RecordMetric):
    """Errors over words; records are N x 2."""

    name, higher_is_better = "wer", False

    def records(self, predictions: object, targets: object, contexts: object) -> np.ndarray:
        return np.asarray(predictions)

    def value(self, records: np.ndarray, weights: np.ndarray) -> float:
        return float(records[:, 0] @ weights / (records[:, 1] @ weights))


def wrote(
    folder: Path,
    name: str,
    metric: Metric,
    record: np.ndarray | Records,
    count: int = 0,
    good: list[int] | None = None,
    prefix: str = "",
) -> Path:
    names = [f"{prefix}{i}.wav" for i in range(count or len(record))]
    path = records_path(folder / f"{name}.json", metric)
    with record_writer(path, metric) as writer:
        writer.write(Batch(names, None, names), record, good)
    return path


def test_equal_runs_have_none(tmp_path: Path) -> None:
    record = np.array([1, 0, 1], bool)
    one, other = (wrote(tmp_path, name, TopK(), record) for name in ("a", "b"))
    assert differing(one, other, TopK(), 8) == []


def test_the_largest_effect_on_the_metric_is_first(tmp_path: Path) -> None:
    baseline = np.array([[1, 10], [2, 10], [3, 10], [0, 500]], np.float64)
    target = np.array([[2, 10], [2, 10], [3, 20], [1, 500]], np.float64)
    files = wrote(tmp_path, "a", Rate(), target), wrote(tmp_path, "b", Rate(), baseline)
    values = {}
    for place in (0, 2, 3):
        swapped = baseline.copy()
        swapped[place] = target[place]
        values[place] = abs(swapped[:, 0].sum() / swapped[:, 1].sum() - 6 / 530)
    wanted = sorted(values, key=lambda place: -values[place])
    found = differing(*files, Rate(), 8)
    assert [index for index, _ in found] == wanted
    assert found[0][1] == f"{wanted[0]}.wav"
    assert differing(*files, Rate(), 1) == found[:1]
    assert next(index for index, _ in differing(*files, None, 8)) == 2  # moved by 10, the others by 1


def test_only_samples_that_both_ran(tmp_path: Path) -> None:
    target = wrote(tmp_path, "a", TopK(), np.array([1, 0], bool), count=3, good=[0, 2])
    baseline = wrote(tmp_path, "b", TopK(), np.array([0, 1], bool), count=3, good=[0, 1])
    assert differing(target, baseline, TopK(), 8) == [(0, "0.wav")]


def test_other_numbers_of_records(tmp_path: Path) -> None:
    dtype = [("score", "f4"), ("right", "?")]
    rows = np.array([(0.5, True), (0.4, False), (0.3, True)], dtype)
    moved = np.array([(0.5, True), (0.4, False), (0.2, True)], dtype)
    one = wrote(tmp_path, "a", Rate(), Records(rows[:2], np.array([0, 2])), count=3)
    other = wrote(tmp_path, "b", Rate(), Records(moved, np.array([0, 0, 2])), count=3)
    assert differing(one, other, None, 8) == [(0, "0.wav"), (2, "2.wav")]


def test_at_most_so_many_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", 2)
    files = [wrote(tmp_path, name, TopK(), np.full(5, name == "a")) for name in ("a", "b")]
    assert differing(*files, TopK(), 8) == [(0, "0.wav"), (1, "1.wav")]


def test_other_samples_are_an_error(tmp_path: Path) -> None:
    record = np.array([1, 0], bool)
    files = [wrote(tmp_path, name, TopK(), record, prefix=name) for name in ("a", "b")]
    with pytest.raises(DataError, match="are not of the same samples"):
        differing(*files, TopK(), 8)
