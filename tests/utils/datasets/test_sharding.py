from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError
from utils.datasets.samples import Rejected, Sample, TableDataset
from utils.datasets.sharding import RANK, SIZE, rank_and_size, shard


@pytest.fixture(autouse=True)
def no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANK, raising=False)
    monkeypatch.delenv(SIZE, raising=False)


@given(count=st.integers(0, 40), size=st.integers(1, 50))
def test_union_over_ranks_is_the_data_set(count: int, size: int) -> None:
    whole = TableDataset(
        [Sample(Path(f"x.npz[{i}]"), i) for i in range(count)],
        classes=["a"],
        rejected=[Rejected(Path(f"{i}.txt"), "no") for i in range(count // 2)],
        rows=np.arange(count),
    )
    parts = [shard(whole, rank, size) for rank in range(size)]
    assert sorted(sample.label for part in parts for sample in part) == list(range(count))
    assert sorted(path for part in parts for path, _ in part.rejected) == sorted(path for path, _ in whole.rejected)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert part.rows.tolist() == [sample.label for sample in part]
        assert part.classes == whole.classes


def test_parts_are_those_of_the_distributed_sampler_without_its_padding() -> None:
    whole = TableDataset([Sample(Path(str(i)), i) for i in range(7)])
    assert [sample.label for sample in shard(whole, 1, 3)] == [1, 4]
    assert len(shard(whole, 0, 1)) == 7


@pytest.mark.parametrize(("rank", "size"), [(-1, 2), (2, 2), (0, 0)])
def test_rank_that_does_not_exist(rank: int, size: int) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        shard(TableDataset([]), rank, size)


def test_without_environment_variables() -> None:
    assert rank_and_size() == (0, 1)


@pytest.mark.parametrize(
    ("env_rank", "env_size", "rank", "want"),
    [
        ("2", "4", -1, (2, 4)),
        ("2", "4", 1, (2, 4)),  # the environment overrides the argument
        (None, "4", 3, (3, 4)),
        (None, "4", -1, (0, 1)),
        ("-1", None, -1, (0, 1)),
    ],
)
def test_environment(
    monkeypatch: pytest.MonkeyPatch, env_rank: str | None, env_size: str | None, rank: int, want: tuple[int, int]
) -> None:
    for name, value in ((RANK, env_rank), (SIZE, env_size)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert rank_and_size(rank) == want


@pytest.mark.parametrize(
    ("env_rank", "env_size", "message"),
    [
        ("abc", "4", f"{RANK}='abc'"),
        ("1.0", "4", f"{RANK}='1.0'"),
        ("", "4", f"{RANK}=''"),
        ("9" * 5000, "4", f"{RANK}='9999"),
        ("1", "two", f"{SIZE}='two'"),
        ("4", "4", rf"rank 4 must be from 0 to 3 \({SIZE}=4\)"),
        ("-2", "4", "rank -2 must be from 0 to 3"),
        ("1", "0", f"rank 1 needs environment variable {SIZE}"),
        ("1", "-3", f"rank 1 needs environment variable {SIZE}"),
    ],
)
def test_bad_environment(monkeypatch: pytest.MonkeyPatch, env_rank: str, env_size: str, message: str) -> None:
    monkeypatch.setenv(RANK, env_rank)
    monkeypatch.setenv(SIZE, env_size)
    with pytest.raises(ConfigError, match=message):
        rank_and_size()


def test_rank_without_size() -> None:
    with pytest.raises(ConfigError, match=f"rank 0 .*{SIZE}.*mpirun"):
        rank_and_size(0)
