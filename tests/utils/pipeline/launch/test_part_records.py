from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ConfigError, DataError
from utils.datasets import Batch
from utils.pipeline.launch.part_records import merge_records, part_path
from utils.pipeline.records import RecordWriter

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=12)


def write(path: Path, names: list[str], rank: int = 0, size: int = 1) -> None:
    names = names[rank::size]
    with RecordWriter(path, "top1", rank=rank, size=size) as writer:
        writer.write(Batch([Path("x")] * len(names), None, names), np.arange(len(names)) % 2 == rank % 2)


@given(NAMES, st.integers(1, 5))
def test_one_row_of_each_in_turn(tmp_path_factory: pytest.TempPathFactory, names: list[str], size: int) -> None:
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
    with pytest.raises(DataError, match=r"r-1of2\.csv.* a folder that all machines share"):
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
