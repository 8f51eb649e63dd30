"""Samples at risk: margins of both runs, from both kinds of records files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from utils.datasets.base import Batch
from utils.metrics import TopK
from utils.metrics.base import Metric, Records
from utils.metrics.text.edits import SequenceAccuracy
from utils.pipeline.report.risk import at_risk
from utils.pipeline.resume.records import record_writer


def written(path: Path, metric: Metric, margins: list[float], good: list[int] | None = None) -> Path:
    """Write records of samples s0, s1 and so on with these margins."""
    count = len(margins)
    values = np.ones(count, bool) if metric.per_sample else np.zeros((count, 2))
    with record_writer(path, metric) as writer:
        names = [f"s{place}" for place in range(count if good is None else max(good) + 1)]
        writer.write(Batch(names, [0] * len(names), names), Records(values, margins=np.array(margins)), good)
    return path


@pytest.mark.parametrize(("metric", "ending"), [(TopK(), "csv"), (SequenceAccuracy(), "npz")])
def test_samples_at_risk(tmp_path: Path, metric: Metric, ending: str) -> None:
    exact = [5.0, -0.25, 0.125, 7.0, np.inf] + [4.0] * 16
    fast = [5.25, -0.5, 0.375, 7.0, np.inf] + [4.25] * 16
    files = [written(tmp_path / f"{name}.{ending}", metric, values) for name, values in (("f", fast), ("e", exact))]
    assert at_risk(*files) == {"deviation": 0.25, "samples": ["s2", "s1"]}
    assert at_risk(files[1], files[1]) == {"deviation": 0.0, "samples": []}


def test_samples_that_one_run_lost(tmp_path: Path) -> None:
    fast = written(tmp_path / "f.csv", TopK(), [1.0, 3.0], [0, 2])
    exact = written(tmp_path / "e.csv", TopK(), [0.5, 0.25, 2.5])
    assert at_risk(fast, exact) == {"deviation": 0.5, "samples": ["s0"]}


def test_records_without_margins(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{name}.npz", SequenceAccuracy(), [np.nan] * 3) for name in "fe"]
    assert at_risk(*files) is None
