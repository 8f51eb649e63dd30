from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError, DataError
from utils.datasets.base import Batch
from utils.metrics import Records
from utils.pipeline.resume.records import RecordWriter, SampleRecords
from utils.pipeline.resume.records.arrays import ArrayRecordWriter, read_arrays
from utils.pipeline.resume.records.file import Kept
from utils.pipeline.resume.records.merging import merged, part_path

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=12)


def write(path: Path, names: list[str], rank: int = 0, size: int = 1) -> None:
    names = names[rank::size]
    with RecordWriter(path, "top1", rank=rank, size=size) as writer:
        writer.write(Batch([Path("x")] * len(names), None, names), np.arange(len(names)) % 2 == rank % 2)


def merge_records(path: Path, size: int) -> None:
    merged(path, [Kept(part_path(path, rank, size), "") for rank in range(size)]).place()


@given(NAMES, st.integers(1, 5))
def test_rows_of_parts_are_interleaved(tmp_path_factory: pytest.TempPathFactory, names: list[str], size: int) -> None:
    folder = tmp_path_factory.mktemp("records")
    for rank in range(size):
        write(part_path(folder / "merged.csv", rank, size), names, rank, size)
    merge_records(folder / "merged.csv", size)
    assert [path.name for path in folder.iterdir()] == ["merged.csv"]
    right = [(index // size) % 2 == (index % size) % 2 for index in range(len(names))]
    with RecordWriter(folder / "alone.csv", "top1") as writer:
        writer.write(Batch([Path("x")] * len(names), None, names), np.array(right))
    assert (folder / "merged.csv").read_bytes() == (folder / "alone.csv").read_bytes()


def test_a_part_is_missing(tmp_path: Path) -> None:
    write(part_path(tmp_path / "r.csv", 0, 2), ["a", "b"], 0, 2)
    with pytest.raises(DataError, match=r"r-1of2\.csv.*--json"):
        merge_records(tmp_path / "r.csv", 2)
    assert part_path(tmp_path / "r.csv", 0, 2).exists()


def test_parts_of_different_runs(tmp_path: Path) -> None:
    write(part_path(tmp_path / "r.csv", 0, 2), ["a"])
    with RecordWriter(part_path(tmp_path / "r.csv", 1, 2), "top5"):
        pass
    with pytest.raises(DataError, match="different first rows"):
        merge_records(tmp_path / "r.csv", 2)


def test_the_file_cannot_be_written(tmp_path: Path) -> None:
    write(part_path(tmp_path / "r.csv", 0, 1), ["a"])
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        merge_records(tmp_path / "r.csv", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-0of1.csv", "r.csv"]


KEPT = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), min_size=1, max_size=12)


@given(KEPT, st.integers(1, 5), st.integers(1, 4), st.booleans(), st.booleans())
def test_merged_arrays_equal_those_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    kept: list[tuple[str, int | None]],
    size: int,
    batch: int,
    grouped: bool,
    own: bool,
) -> None:
    """``None`` is a sample that could not be run, a number how many records it has."""
    folder = tmp_path_factory.mktemp("records")

    def write_part(path: Path, rank: int, size: int) -> None:
        mine = list(enumerate(kept))[rank::size]
        with ArrayRecordWriter(path, "ap", rank=rank, size=size) as writer:
            for start in range(0, len(mine), batch):
                part = mine[start : start + batch]
                good = [i for i, (_, (_, count)) in enumerate(part) if count is not None]
                rows = [(place, part[place][0] * 10 + n) for place in good for n in range(part[place][1][1] or 0)]
                samples = np.array([good.index(place) for place, _ in rows], np.int64)
                values = np.array([value for _, value in rows], np.int64)
                units = [f"q{value % 3}" for _, value in rows] if own else None
                record = Records(values, samples, units) if good else None
                names = [f"{i}.png" for i, _ in part]
                writer.write(Batch(names, None, names, [u for _, (u, _) in part] if grouped else None), record, good)

    for rank in range(size):
        write_part(part_path(folder / "merged.npz", rank, size), rank, size)
    (folder / "merged.csv").write_text("of an earlier run")
    merge_records(folder / "merged.npz", size)
    assert [path.name for path in folder.iterdir()] == ["merged.npz"]
    write_part(folder / "alone.npz", 0, 1)
    assert (folder / "merged.npz").read_bytes() == (folder / "alone.npz").read_bytes()


def test_units_with_a_part_without_samples(tmp_path: Path) -> None:
    units = Batch([0], [1], ["a"], ["ann"])
    for rank in range(2):
        with RecordWriter(part_path(tmp_path / "r.csv", rank, 2), "top1", rank=rank, size=2) as writer:
            if rank == 0:
                writer.write(units, np.array([True]))
    merge_records(tmp_path / "r.csv", 2)
    assert (tmp_path / "r.csv").read_text() == "index,name,label,unit,top1\n0,a,1,ann,1\n"


def test_array_parts_that_do_not_fit(tmp_path: Path) -> None:
    for rank, name in enumerate(("ap", "wer")):
        with ArrayRecordWriter(part_path(tmp_path / "r.npz", rank, 2), name, rank=rank, size=2) as writer:
            writer.write(Batch([0], None, ["a"]), np.zeros(1))
    with pytest.raises(DataError, match=r"r\.npz have different first rows"):
        merge_records(tmp_path / "r.npz", 2)
    part_path(tmp_path / "r.npz", 1, 2).unlink()
    with pytest.raises(DataError, match=r"r-1of2\.npz.*--json"):
        merge_records(tmp_path / "r.npz", 2)
    assert read_arrays(part_path(tmp_path / "r.npz", 0, 2)).metric_name == "ap"


# ------------------------------------------------------------------------------------------------------------- margins

MARGINS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(width=32)), min_size=1, max_size=7)


@given(MARGINS, st.integers(1, 3), st.integers(1, 4), st.booleans(), st.sampled_from(["csv", "npz"]))
def test_merged_margins_equal_those_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    kept: list[tuple[str, float | None]],
    size: int,
    batch: int,
    grouped: bool,
    kind: str,
) -> None:
    """``None`` is a sample that could not be run; with few samples a part has none."""
    folder = tmp_path_factory.mktemp("records")

    def write_part(path: Path, rank: int, size: int) -> None:
        mine = list(enumerate(kept))[rank::size]
        writer_of = RecordWriter if kind == "csv" else ArrayRecordWriter
        with writer_of(path, "top1", rank=rank, size=size, has_margins=True) as writer:
            for start in range(0, len(mine), batch):
                part = mine[start : start + batch]
                good = [place for place, (_, (_, margin)) in enumerate(part) if margin is not None]
                margins = np.array([part[place][1][1] for place in good], np.float64)
                record = Records(margins > 0, margins=margins) if good else None
                names = [f"{index}.png" for index, _ in part]
                units = [unit for _, (unit, _) in part] if grouped else None
                writer.write(Batch(names, None, names, units), record, good)

    for rank in range(size):
        write_part(part_path(folder / f"merged.{kind}", rank, size), rank, size)
    merge_records(folder / f"merged.{kind}", size)
    write_part(folder / f"alone.{kind}", 0, 1)
    assert (folder / f"merged.{kind}").read_bytes() == (folder / f"alone.{kind}").read_bytes()
    if kind == "npz":
        found = read_arrays(folder / "merged.npz").margins
    else:
        read = [row.margin for row in SampleRecords(folder / "merged.csv")]
        found = np.array([np.nan if margin is None else margin for margin in read])
    assert np.array_equal(found, [np.nan if m is None else m for _, m in kept], equal_nan=True)


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_parts_with_and_without_margins(tmp_path: Path, kind: str) -> None:
    writer_of = RecordWriter if kind == "csv" else ArrayRecordWriter
    for rank in range(2):
        path = part_path(tmp_path / f"r.{kind}", rank, 2)
        with writer_of(path, "top1", rank=rank, size=2, has_margins=rank == 0) as writer:
            writer.write(Batch([0], None, ["a"]), Records(np.ones(1), margins=np.ones(1)))
    with pytest.raises(DataError, match=rf"r\.{kind} have different first rows"):
        merge_records(tmp_path / f"r.{kind}", 2)
