"""Samples at risk: margins of both runs, from both kinds of records files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Array
from utils.datasets.base import Batch
from utils.metrics import TopK
from utils.metrics.base import Metric, Records
from utils.metrics.clicks import RECORD as CLICK, Clicks
from utils.metrics.frames import RECORD as FRAME, FrameScores
from utils.metrics.graph_labels import RECORD as PROPERTY, GraphLabels
from utils.metrics.speakers import SpeakerVerification
from utils.metrics.text.edits import SequenceAccuracy
from utils.metrics.verification import RECORD as PAIR, Verification
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


def recorded(path: Path, metric: Metric, parts: list[Array], good: list[int] | None = None) -> Path:
    """Write the records of samples s0, s1 and so on, one part each; the metric has no margins of its own."""
    values = Records(np.concatenate(parts), np.repeat(np.arange(len(parts)), list(map(len, parts))))
    names = [f"s{place}" for place in range(len(parts) if good is None else max(good) + 1)]
    with record_writer(path, metric) as writer:
        writer.write(Batch(names, [0] * len(names), names), values, good)
    return path


def scored(dtype: np.dtype[Any], scores: list[float], **columns: Any) -> list[Array]:
    records = np.zeros(len(scores), dtype)
    records["score"] = scores
    for name, column in columns.items():
        records[name] = column
    if dtype == PROPERTY:  # one property per sample
        records = records[:, None]
    return list(np.split(records, len(records)))


SAME = [True, False] * 4
EXACT = [0.9, 0.1, 0.8, 0.2, 0.51, 0.3, 0.7, 0.49]
FAST = [0.92, 0.12, 0.82, 0.22, 0.53, 0.32, 0.72, 0.51]


@pytest.mark.parametrize(
    ("metric", "dtype", "columns"),
    [
        (SpeakerVerification(), PAIR, {"same": SAME}),
        (Verification(), PAIR, {"same": SAME, "fold": [0, 0, 1, 1, 0, 1, 1, 0]}),
        (FrameScores("f1"), FRAME, {"true": SAME}),
        (GraphLabels("accuracy"), PROPERTY, {"same": SAME, "known": True}),
    ],
    ids=["equal error rate", "accuracy of pairs", "F1 of frames", "accuracy of properties"],
)
def test_scores_near_the_threshold(tmp_path: Path, metric: Metric, dtype: Any, columns: dict[str, Any]) -> None:
    """All scores move by 0.02; those of s4 and s7, 0.51 and 0.49, are within that of one half."""
    files = [
        recorded(tmp_path / f"{name}.npz", metric, scored(dtype, scores, **columns))
        for name, scores in (("f", FAST), ("e", EXACT))
    ]
    found = at_risk(*files, metric)
    assert found is not None
    assert found["deviation"] == pytest.approx(0.02, rel=1e-5)
    assert set(found["samples"]) == {"s4", "s7"}
    assert at_risk(*files) is None


@pytest.mark.parametrize(
    ("metric", "dtype", "column"),
    [(Clicks(), CLICK, "same"), (Verification("auc"), PAIR, "same"), (FrameScores("auc"), FRAME, "true")],
    ids=["clicks", "pairs", "frames"],
)
def test_the_area_under_a_curve_names_both_of_a_close_pair(
    tmp_path: Path, metric: Metric, dtype: Any, column: str
) -> None:
    exact, fast, kinds = [0.9, 0.88], [0.84, 0.94], [True, False]
    files = [
        recorded(tmp_path / f"{name}.npz", metric, scored(dtype, scores, **{column: kinds}))
        for name, scores in (("f", fast), ("e", exact))
    ]
    found = at_risk(*files, metric)
    assert found is not None
    assert found["deviation"] == pytest.approx(0.12, rel=1e-5)
    assert sorted(found["samples"]) == ["s0", "s1"]


def test_a_recording_has_many_frames_and_one_run_lost_one(tmp_path: Path) -> None:
    """The recordings have two frames each; the second, with the frame nearest the threshold, was not run."""
    metric = FrameScores("f1")
    near, lost, far = (scored(FRAME, scores) for scores in ([0.9, 0.49], [0.5, 0.5], [0.1, 0.2]))
    moved_near, moved_far = (scored(FRAME, scores) for scores in ([0.88, 0.51], [0.12, 0.22]))
    whole = [np.concatenate(one) for one in (near, lost, far)]
    fast = recorded(tmp_path / "f.npz", metric, [np.concatenate(one) for one in (moved_near, moved_far)], [0, 2])
    found = at_risk(fast, recorded(tmp_path / "e.npz", metric, whole), metric)
    assert found is not None
    assert found["samples"] == ["s0"]


def test_records_of_other_samples_have_no_margins(tmp_path: Path) -> None:
    metric = FrameScores("f1")
    one = recorded(tmp_path / "a.npz", metric, scored(FRAME, [0.9, 0.4]))
    two = recorded(tmp_path / "b.npz", metric, [np.concatenate(scored(FRAME, [0.9, 0.4]))])
    assert at_risk(one, two, metric) is None
