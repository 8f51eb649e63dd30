"""Histories of users: order, splits, targets, and unknown users or items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.datasets.tabular.histories import CATALOGUE, UNASKED, held_out, sequences, typed, whole
from utils.datasets.tabular.ratings import Ratings, read_ratings

LINES = """\
user_id:token\titem_id:token\trating:float\ttimestamp:float
ann\tx\t5\t30
ann\ty\t3\t10
ann\tz\t4\t20
bob\tx\t1\t5
bob\tx\t2\t6
cyd\tw\t5\t40
"""


@pytest.fixture
def ratings(tmp_path: Path) -> Ratings:
    (tmp_path / "few.inter").write_text(LINES)
    return read_ratings(tmp_path)


def test_a_history_is_in_order_of_time_before_its_targets(ratings: Ratings) -> None:
    found = held_out(ratings, "leave_one_out", "test")
    (sample,) = found.samples
    assert (sample.id, sample.items, tuple(sample.targets)) == ("ann", ["y", "z"], ("x",))
    assert found.targets == [{"x": 1}]
    assert found.names == ["user ann"]
    assert found.notes[UNASKED] == {"nothing before it": 0, "nothing new in it": 1}  # bob: the same item again
    catalogue = found.notes[CATALOGUE]
    assert dict(zip(catalogue.names, catalogue.counts.tolist(), strict=True)) == {"x": 1, "y": 1, "z": 0, "w": 1}
    (before,) = held_out(ratings, "leave_one_out", "valid").samples
    assert (before.items, tuple(before.targets)) == (["y"], ("z",))


def test_users_without_a_history_are_counted(tmp_path: Path) -> None:
    head = LINES.splitlines()[0]
    rows = [f"old\ti{n}\t4\t{n}" for n in range(17)] + ["old\tnew1\t4\t98", "old\tnew2\t4\t99", "late\ti1\t4\t100"]
    (tmp_path / "r.inter").write_text("\n".join([head, *rows]))
    found = held_out(read_ratings(tmp_path), "temporal", "test")
    (sample,) = found.samples
    assert (sample.id, len(sample.items), tuple(sample.targets)) == ("old", 18, ("new2",))
    assert found.notes[UNASKED]["nothing before it"] == 1


def test_given_users_and_a_given_history(ratings: Ratings) -> None:
    found = whole(ratings, ["cyd", "unknown", "cyd"])
    assert [sample.id for sample in found.samples] == ["cyd"]
    assert found.targets is None
    assert [str(one.path) for one in found.rejected] == ["user unknown"]
    assert [sample.id for sample in whole(ratings, None).samples] == ["ann", "bob", "cyd"]
    (sample,) = (given_ := typed(ratings, ["z", "strange", "x"])).samples
    assert sample.items == ["z", "x"]
    assert [str(one.path) for one in given_.rejected] == ["item strange"]


def test_invalid_requests(ratings: Ratings) -> None:
    with pytest.raises(DataError, match=r"--users unknown: "):
        whole(ratings, ["unknown"])
    with pytest.raises(DataError, match="--history is empty"):
        typed(ratings, [""])
    with pytest.raises(DataError, match="--history strange"):
        typed(ratings, ["strange"])
    with pytest.raises(ConfigError, match=r"part 'train' .*valid or test"):
        held_out(ratings, "leave_one_out", "train")
    alone = ratings._replace(users=np.arange(6), user_names=[str(i) for i in range(6)])
    with pytest.raises(DataError, match=r"no user .*test part"):
        held_out(alone, "leave_one_out", "test")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=40))
def test_sequences_are_sorted_by_time_and_row(rows: list[tuple[int, int, int]]) -> None:
    users, items, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    made = Ratings(
        users, items, np.ones(len(rows), np.float32), times.astype(np.float64), [*"abcde"], [*"tuvwxyz"], {}, {}, []
    )
    kept = items % 2 == 0
    for user, found in enumerate(sequences(made, kept)):
        own = [(time, place, item) for place, (who, item, time) in enumerate(rows) if who == user and item % 2 == 0]
        assert found.tolist() == [item for _, _, item in sorted(own)]
