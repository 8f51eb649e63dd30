"""Records of more parts than files may be open, in windows smaller than a part, and metrics of thousands of parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import ROOT

from engine import DataError
from utils.datasets.base import Batch
from utils.datasets.image.boxes import Objects
from utils.datasets.tabular.clicks import Click
from utils.metrics import Records
from utils.metrics.base import Metric
from utils.metrics.clicks import Clicks
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.metrics.text.transcripts import WordErrorRate
from utils.pipeline.launch import Part, merge
from utils.pipeline.report.report import Report
from utils.pipeline.resume.records import Kept, RecordWriter, array_merging, merging
from utils.pipeline.resume.records.arrays import ArrayRecordWriter
from utils.pipeline.resume.records.merging import merged, part_path
from utils.postprocess.image.nms import Detections

LONG = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small files would wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Row(NamedTuple):
    """A sample: its unit, its number of records (``None``: it could not be run), and whether its file was rejected."""

    unit: str
    records: int | None
    rejected: bool


ROWS = st.lists(
    st.builds(Row, st.sampled_from("abc"), st.none() | st.integers(0, 4), st.booleans()), min_size=1, max_size=30
)


def write_part(path: Path, rows: list[Row], rank: int, size: int, *, grouped: bool, own: bool, margins: bool) -> None:
    mine = [(place, row) for place, row in list(enumerate(rows))[rank::size] if not row.rejected]
    numbers = np.array([place for place, _ in mine], np.int64)
    with ArrayRecordWriter(path, "ap", rank=rank, size=size, numbers=numbers, has_margins=margins) as writer:
        for start in range(0, len(mine), 3):
            batch = mine[start : start + 3]
            good = [i for i, (_, row) in enumerate(batch) if row.records is not None]
            flat = [(i, batch[i][0] * 10 + n) for i in good for n in range(batch[i][1].records or 0)]
            samples = np.array([good.index(i) for i, _ in flat], np.int64)
            values = np.array([(value, value / 3) for _, value in flat], [("n", "<i4"), ("x", "<f8")])
            units = [f"ü{value % 3}" for _, value in flat] if own else None
            edges = np.array([batch[i][0] / 7 for i in good]) if margins else None
            record = Records(values, samples, units, edges) if good else None
            names = [f"{place}{'é' * (place % 3)}.png" for place, _ in batch]
            writer.write(Batch(names, None, names, [row.unit for _, row in batch] if grouped else None), record, good)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.integers(1, 12), st.integers(2, 4), st.integers(1, 400), st.booleans(), st.booleans(), st.booleans())
def test_groups_and_windows_give_the_bytes_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[Row],
    size: int,
    most: int,
    window: int,
    grouped: bool,
    own: bool,
    margins: bool,
) -> None:
    monkeypatch.setattr(merging, "MOST_OPEN", most)
    monkeypatch.setattr(array_merging, "WINDOW_BYTES", window)
    folder = tmp_path_factory.mktemp("records")
    how = {"grouped": grouped, "own": own, "margins": margins}
    for rank in range(size):
        write_part(part_path(folder / "merged.npz", rank, size), rows, rank, size, **how)
    parts = [Kept(part_path(folder / "merged.npz", rank, size), "") for rank in range(size)]
    merged(folder / "merged.npz", parts).place()
    assert [path.name for path in folder.iterdir()] == ["merged.npz"]
    write_part(folder / "alone.npz", rows, 0, 1, **how)
    assert (folder / "merged.npz").read_bytes() == (folder / "alone.npz").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30), st.integers(1, 12))
def test_groups_of_rows(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, names: list[str], size: int
) -> None:
    monkeypatch.setattr(merging, "MOST_OPEN", 3)
    folder = tmp_path_factory.mktemp("records")

    def write(path: Path, rank: int, size: int) -> None:
        mine = names[rank::size]
        with RecordWriter(path, "loss", rank=rank, size=size) as writer:
            writer.write(Batch(mine, None, mine), np.arange(rank, len(names), size) / 7)

    write(folder / "alone.csv", 0, 1)
    for rank in range(size):
        write(part_path(folder / "merged.csv", rank, size), rank, size)
    merged(folder / "merged.csv", [Kept(part_path(folder / "merged.csv", rank, size), "") for rank in range(size)])
    assert (folder / ".merged.csv.part").read_bytes() == (folder / "alone.csv").read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_a_part_of_another_metric_in_a_later_group(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MOST_OPEN", 2)
    writer_of = RecordWriter if suffix == "csv" else ArrayRecordWriter
    paths = [part_path(tmp_path / f"r.{suffix}", rank, 5) for rank in range(5)]
    for rank, path in enumerate(paths):
        with writer_of(path, "top1" if rank < 4 else "loss", rank=rank, size=5) as writer:
            writer.write(Batch(["a"], None, ["a"]), np.zeros(1))
    with pytest.raises(DataError, match=rf"parts of r\.{suffix} have different first rows.*loss.*top1"):
        merged(tmp_path / f"r.{suffix}", [Kept(path, "") for path in paths])
    assert sorted(tmp_path.iterdir()) == paths


def test_damaged_parts(tmp_path: Path) -> None:
    rows = part_path(tmp_path / "r.csv", 0, 1)
    rows.write_text("index,name,label,top1\nx,a,1,1\n")
    with pytest.raises(DataError, match=r"r-0of1\.csv: 'x,a,1,1' is not the row of a sample"):
        merged(tmp_path / "r.csv", [Kept(rows, "")])
    arrays = part_path(tmp_path / "r.npz", 0, 1)
    with ArrayRecordWriter(arrays, "ap") as writer:
        writer.write(Batch(["a"], None, ["a"]), np.zeros(1))
    content = arrays.read_bytes()
    for damaged in (b"", content[:-200], content.replace(b"(1,)", b"(9,)")):
        arrays.write_bytes(damaged)
        with pytest.raises(DataError, match=r"r-0of1\.npz is not a records file"):
            merged(tmp_path / "r.npz", [Kept(arrays, "")])
    np.savez_compressed(arrays.with_suffix(""), index=np.zeros(1, np.int64))
    with pytest.raises(DataError, match="compressed"):
        merged(tmp_path / "r.npz", [Kept(arrays, "")])
    assert [path.name for path in tmp_path.iterdir()] == ["r-0of1.npz"]  # the writer removes the other kind


LIMITED = """
import resource, sys
from pathlib import Path
limit, size, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from utils.pipeline.resume.records import Kept
from utils.pipeline.resume.records.merging import merged, part_path
merged(path, [Kept(part_path(path, rank, size), "") for rank in range(size)]).place()
"""


@pytest.mark.parametrize(
    ("size", "limit"),
    [(300, 64), pytest.param(2000, 256, marks=pytest.mark.slow), pytest.param(10_000, 256, marks=LONG)],
)
@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_more_parts_than_files_may_be_open(suffix: str, size: int, limit: int, tmp_path: Path) -> None:
    writer_of: Any = RecordWriter if suffix == "csv" else ArrayRecordWriter
    names = [f"{i}.png" for i in range(3 * size + 1)]
    path = tmp_path / f"r.{suffix}"

    def write(path: Path, rank: int, size: int) -> None:
        mine = names[rank::size]
        with writer_of(path, "loss", rank=rank, size=size) as writer:
            writer.write(Batch(mine, None, mine), np.arange(rank, len(names), size) / 7)

    write(tmp_path / f"alone.{suffix}", 0, 1)
    for rank in range(size):
        write(part_path(path, rank, size), rank, size)
    command = [sys.executable, "-c", LIMITED, str(limit), str(size), str(path)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == (tmp_path / f"alone.{suffix}").read_bytes()


# --------------------------------------------------------------------------------------------------------------- values


def clicks(count: int, random: np.random.Generator) -> tuple[Metric, list[Any], list[Any]]:
    scores = random.integers(0, 50, count) / 50  # with ties
    targets = [Click(bool(clicked), f"user {i % 17}") for i, clicked in enumerate(random.random(count) < scores)]
    return Clicks(), scores.tolist(), targets


def boxes(count: int, random: np.random.Generator) -> tuple[Metric, list[Any], list[Any]]:
    corners = random.integers(0, 20, (count, 3, 2)).astype(float)
    real = np.concatenate([corners, corners + 5], axis=2)
    kinds = random.integers(0, 3, (count, 3))
    scores = random.integers(1, 9, (count, 3)) / 10
    found = [Detections(one + shift, score, kind) for one, shift, score, kind in
             zip(real, random.integers(0, 3, count), scores, kinds, strict=True)]  # fmt: skip
    names, flags = ("a", "b", "c"), np.zeros(3, bool)
    targets = [
        Objects(one, kind, flags, names, None, number)
        for number, (one, kind) in enumerate(zip(real, kinds, strict=True))
    ]
    return MeanAveragePrecision(names), found, targets


def words(count: int, random: np.random.Generator) -> tuple[Metric, list[Any], list[Any]]:
    texts = [" ".join(random.choice(["yes", "no", "on", "off"], random.integers(1, 6))) for _ in range(2 * count)]
    return WordErrorRate(), texts[:count], texts[count:]


@pytest.mark.parametrize("made", [clicks, boxes, words])
@pytest.mark.parametrize("size", [300, pytest.param(2000, marks=pytest.mark.slow), pytest.param(10_000, marks=LONG)])
def test_metrics_of_all_samples_do_not_depend_on_the_number_of_parts(made: Any, size: int) -> None:
    """AUC, mAP and the word error rate need all records at once; the value is that of one process bit for bit."""
    count = size + 100
    whole, predictions, targets = made(count, np.random.default_rng(7))
    whole.update(predictions, targets)
    parts = []
    for rank in range(size):
        state = made(0, np.random.default_rng(7))[0]
        state.update(predictions[rank::size], targets[rank::size])
        samples = len(predictions[rank::size])
        report = Report(whole.name, 0.0, samples, 1, 1.0, 1.0, 0.0, 0.0, 0.0, state=state)
        parts.append(Part(report, rank, size, "host"))
    found = merge(parts)
    assert (found.samples, found.processes) == (count, size)
    assert found.metric == whole.compute()
    assert dict(found.secondary) == pytest.approx(dict(whole.secondary()), rel=0, abs=0, nan_ok=True)
