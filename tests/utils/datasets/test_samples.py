from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError
from utils.datasets.base import Batches
from utils.datasets.samples import Sample, TableDataset


def numbered(count: int, *, labelled: bool = True) -> TableDataset:
    return TableDataset([Sample(Path(f"{i}.png"), i % 3 if labelled else None) for i in range(count)])


@given(count=st.integers(0, 50), batch_size=st.integers(1, 60))
def test_batches_have_every_sample_once_in_order(count: int, batch_size: int) -> None:
    batches = numbered(count).batches(batch_size)
    for _ in range(2):  # re-iterable
        found = list(batches)
        assert len(found) == len(batches)
        assert all(len(batch.samples) == batch_size for batch in found[:-1])
        assert [path for batch in found for path in batch.samples] == [Path(f"{i}.png") for i in range(count)]
        assert [int(label) for batch in found for label in batch.targets] == [i % 3 for i in range(count)]


def test_only_batches_with_some_samples() -> None:
    dataset = numbered(10)
    batches = Batches(dataset, 4, [9, 1, 0])
    assert len(batches) == 2
    assert [batch.names for batch in batches] == [[f"{i}.png" for i in range(4)], ["8.png", "9.png"]]
    assert batches.dataset is dataset


def test_last_batch_is_short() -> None:
    *_, last = numbered(7).batches(3)
    assert last.names == ["6.png"]
    assert last.targets.dtype == np.int64
    assert last.targets.tolist() == [0]


def test_no_labels_is_none() -> None:
    assert next(iter(numbered(2, labelled=False).batches(2))).targets is None


def test_sequence_interface() -> None:
    dataset = numbered(3)
    assert len(dataset) == 3
    assert dataset[-1] == Sample(Path("2.png"), 2)
    assert list(dataset) == dataset.samples


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, "4", None])
def test_bad_batch_size(batch_size: object) -> None:
    with pytest.raises(ConfigError, match=r"batch_size "):
        numbered(3).batches(batch_size)
