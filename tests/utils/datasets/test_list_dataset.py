"""Data sets of any samples: lists, selections of them, and shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support import DIGITS

from engine import ConfigError
from utils.datasets import Batch, Dataset, ListDataset, Rejected, load_dataset, shard

SAMPLES = st.lists(
    st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.floats(allow_nan=False), st.text(max_size=2))),
    max_size=12,
)


def rows(dataset: Dataset, size: int = 5) -> list[tuple[Any, ...]]:
    """Return every sample with its target, name and unit."""
    found: list[tuple[Any, ...]] = []
    for batch in dataset.batches(size):
        targets = [None] * len(batch.names) if batch.targets is None else batch.targets
        found += zip(batch.samples, targets, batch.names, batch.units or batch.names, strict=True)
    return found


@given(samples=SAMPLES, size=st.integers(1, 7), data=st.data())
def test_any_selection(samples: list[Any], size: int, data: st.DataObject) -> None:
    dataset = ListDataset(
        samples, [{"of": sample} for sample in samples], units=[f"u{i % 3}" for i in range(len(samples))]
    )
    everything = rows(dataset, size)
    assert [row[0] for row in everything] == samples
    places = data.draw(st.lists(st.integers(0, len(samples) - 1), max_size=9)) if samples else []
    part = dataset.select(places)
    assert rows(part, size) == [everything[i] for i in places]
    assert part.has_units
    again = data.draw(st.lists(st.integers(0, len(places) - 1), max_size=5)) if places else []
    assert rows(part.select(again), size) == [everything[places[i]] for i in again]
    assert rows(dataset.select(range(1, len(samples), 2)), size) == everything[1::2]


@given(count=st.integers(0, 23), size=st.integers(1, 6))
def test_shards_cover_the_data_set(count: int, size: int) -> None:
    rejected = [Rejected(Path(f"bad{i}"), "is bad") for i in range(count // 2)]
    dataset = ListDataset(list(range(count)), rejected=rejected)
    parts = [shard(dataset, rank, size) for rank in range(size)]
    assert sorted(row[0] for part in parts for row in rows(part)) == list(range(count))
    assert sorted(bad.path for part in parts for bad in part.rejected) == sorted(bad.path for bad in rejected)


def test_fingerprint_covers_content(tmp_path: Path) -> None:
    file = tmp_path / "data.tsv"
    file.write_text("a\tb\n")

    def made(samples: Sequence[Any] = ("x", "y"), **how: Any) -> str:
        return ListDataset(samples, **how).fingerprint()

    assert made() == made()
    different = [made(("x", "z")), made(targets=[1, 2]), made(names=["1", "2"]), made(units=["a", "a"])]
    arrays = [np.zeros(2, np.float32), np.zeros(2, np.float64), np.zeros((1, 2), np.float32)]
    different += [ListDataset([array]).fingerprint() for array in arrays]
    different += [ListDataset([{"a": array}]).fingerprint() for array in arrays]
    before = made(files=[file])
    file.write_text("a\tc\n")
    different += [before, made(files=[file])]
    file.unlink()
    different.append(made(files=[file]))
    assert len(set(different)) == len(different)
    whole = ListDataset(list(range(9)))
    assert whole.select([1, 2]).fingerprint() != whole.select([2, 1]).fingerprint() != whole.fingerprint()


def test_shards_keep_notes() -> None:
    dataset = ListDataset(list("abcd"), notes={"classes": ["vowel", "other"]})
    assert shard(dataset.select([0, 1, 2]), 1, 2).notes == {"classes": ["vowel", "other"]}
    assert load_dataset(DIGITS / "data" / "val").notes == {"classes": list("0123456789")}


def test_lists_of_different_lengths() -> None:
    for how in ({"targets": [1]}, {"names": ["a"]}, {"units": ["a", "b", "c"]}):
        with pytest.raises(ConfigError, match="for 2 samples"):
            ListDataset([1, 2], **how)


@pytest.mark.parametrize(
    "places", [range(5), range(3, 40, 7), range(9, 2, -2), range(4, -1, -1), range(0), [7, 0, 7], []]
)
def test_a_table_returns_any_places(places: Sequence[int]) -> None:
    dataset = load_dataset(DIGITS / "data" / "val")
    samples = [dataset[i] for i in places]
    for batch in (dataset.batch(places), dataset.select(places).batch(range(len(places)))):
        assert batch.samples == [sample.path for sample in samples]
        assert list(batch.targets) == [sample.label for sample in samples]  # type: ignore[arg-type]
    part = dataset.select(places)
    assert len(part) == len(places)
    assert [sample.path for sample in part] == [sample.path for sample in samples]
    assert part.classes == dataset.classes


def test_rows_are_selected_with_their_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=np.arange(6.0), labels=np.arange(6))
    part = load_dataset(tmp_path / "d.npz").select([4, 1])
    assert part.batch(range(2)).samples == [4.0, 1.0]
    assert part.batch(range(2)).names == [str(tmp_path / "d.npz[4]"), str(tmp_path / "d.npz[1]")]


def test_a_subclass_needs_three_methods() -> None:
    class Squares(Dataset):
        rejected = ()

        def __len__(self) -> int:
            return 7

        def batch(self, places: Sequence[int]) -> Batch:
            return Batch(list(places), [i * i for i in places], [f"n{i}" for i in places])

        def fingerprint(self) -> str:
            return "squares"

    assert rows(Squares().select([3, 5]), 1) == [(3, 9, "n3", "n3"), (5, 25, "n5", "n5")]
    assert [len(batch.names) for batch in Squares().batches(3)] == [3, 3, 1]


def test_former_name_of_source_files() -> None:
    with pytest.warns(FutureWarning, match=r"Former\.watched.*source_files"):

        class Former(ListDataset):
            def watched(self) -> set[str]:
                return super().watched() | {"index.db"}

    dataset = Former(["a"], files=["a.txt"])
    assert dataset.source_files() == dataset.watched() == {"a.txt", "index.db"}
    assert dataset.select([0]).source_files() == {"a.txt", "index.db"}
    assert ListDataset(["a"], files=["a.txt"]).watched() == {"a.txt"}
