from __future__ import annotations

import gc
import os
import pickle
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support import RunPython

from engine import ConfigError
from utils.datasets import Sample, TableDataset, load_dataset, shard
from utils.datasets.table import CHUNK, Listing, SampleTable

# Any path: file names that are not UTF-8 have lone surrogates.
texts = st.text(st.characters(exclude_categories=()), min_size=1) | st.sampled_from(
    ["a.png", "ü/猫.png", "x\udcff.png"]
)
paths = st.builds(Path, texts) | st.builds(lambda a, b: Path("/", a, b), texts, texts) | st.just(Path("/"))


@st.composite
def lists(draw: st.DrawFn) -> list[Sample]:
    labels = st.integers(0, 2**63 - 1) if draw(st.booleans()) else st.none()
    return draw(st.lists(st.builds(Sample, paths, labels), max_size=12))


slices = st.slices(12) | st.builds(
    slice, st.none() | st.integers(-15, 15), st.none(), st.sampled_from([None, 1, 2, -1])
)


@given(lists(), slices)
def test_a_table_equals_the_list(samples: list[Sample], part: slice) -> None:
    table = SampleTable.of(samples)
    assert len(table) == len(samples)
    assert list(table) == samples
    assert [str(sample.path) for sample in table] == [str(sample.path) for sample in samples]
    assert list(table[part]) == samples[part]
    assert table.names(part) == [str(sample.path) for sample in samples[part]]
    assert table == samples
    assert samples == table
    assert table[part] == samples[part]
    assert table[part][::-1] == samples[part][::-1]
    for index in range(-len(samples), len(samples)):
        assert table[index] == samples[index]
        assert table[index] in table
    for index in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError):
            table[index]


@given(lists(), slices)
def test_a_table_pickles(samples: list[Sample], part: slice) -> None:
    again = pickle.loads(pickle.dumps(SampleTable.of(samples)[part]))  # noqa: S301
    assert again == samples[part]


@given(lists(), st.integers(1, 5))
def test_batches_of_a_shard(samples: list[Sample], size: int) -> None:
    dataset = TableDataset(samples)
    assert (dataset.labels is None) == (not samples or samples[0].label is None)
    for rank in range(size):
        part = shard(dataset, rank, size)
        batches = list(part.batches(3))
        want = samples[rank::size]
        assert [path for batch in batches for path in batch.samples] == [sample.path for sample in want]
        assert [name for batch in batches for name in batch.names] == [str(sample.path) for sample in want]
        if part.labels is not None:
            assert part.labels.dtype == np.int64
            assert [int(label) for batch in batches for label in batch.targets] == [sample.label for sample in want]


def test_inequality_with_other_types() -> None:
    table = SampleTable.of([Sample(Path("a"), 1)])
    assert table != [Sample(Path("a"), 2)]
    assert table != [Sample(Path("a"), 1)] * 2
    assert table != "a"
    assert table != 1
    with pytest.raises(TypeError):
        hash(table)


def test_labels_of_some_only() -> None:
    with pytest.raises(ConfigError, match="1 of 2 samples"):
        TableDataset([Sample(Path("a"), 1), Sample(Path("b"), None)])


def test_more_than_a_chunk() -> None:
    count = 2 * CHUNK + 7
    table = SampleTable.of(Sample(Path(f"d{i % 3}", f"{i}.png"), i) for i in range(count))
    assert [sample.label for sample in table] == list(range(count))
    assert [sample.path.name for sample in table[5::2]] == [f"{i}.png" for i in range(5, count, 2)]


def touched(root: Path, names: list[bytes]) -> Path:
    for name in names:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass
    return root


file_names = st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & set(b"/\0") and name[:1] != b".")


@settings(deadline=None, max_examples=30)
@given(st.sets(file_names, min_size=1, max_size=8))
def test_any_file_name_is_listed_and_opened(names: set[bytes]) -> None:
    with TemporaryDirectory() as folder:
        flat = touched(Path(folder, "flat"), [name + b".png" for name in names])
        found = load_dataset(flat)
        assert [os.fsencode(sample.path.name) for sample in found] == [
            os.fsencode(name) for name in sorted(os.fsdecode(name + b".png") for name in names)
        ]
        assert all(sample.path.is_file() for sample in found)
        classes = touched(Path(folder, "classes"), [b"c\xff/" + name + b".jpg" for name in names])
        assert sorted(os.fsencode(sample.path.name) for sample in load_dataset(classes)) == sorted(
            name + b".jpg" for name in names
        )


def test_a_link_to_itself_is_not_a_folder(tmp_path: Path) -> None:
    touched(tmp_path, [b"c/1.png"])
    (tmp_path / "loop").symlink_to("loop")
    assert [sample.path.name for sample in load_dataset(tmp_path)] == ["1.png"]
    (tmp_path / "c" / "loop.png").symlink_to("loop.png")
    assert [path.name for path, _ in load_dataset(tmp_path).rejected] == ["loop"]


def bytes_held(make: object) -> tuple[int, int]:
    """Return the bytes of a call's result, and its peak memory."""
    gc.collect()
    tracemalloc.start()
    try:
        result = make()  # type: ignore[operator]
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
        assert len(result)
        return held, peak
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_per_sample() -> None:
    count, folders, name = 100_000, 1000, "ILSVRC2012_val_{:08d}.JPEG"

    def listed() -> TableDataset:
        listing = Listing()
        for i in range(count):
            listing.add(f"/data/imagenet/val/n{i * folders // count:08d}/", name.format(i), i % 1000)
        return TableDataset(listing.table())

    held, peak = bytes_held(listed)
    assert held < count * (40 + len(name.format(0)))
    assert peak < 1.2 * held
    dataset = listed()
    held, peak = bytes_held(lambda: shard(dataset, 1, 4))
    assert peak < count / 4 * (40 + len(name.format(0))) + 2_000_000
    assert len(pickle.dumps(shard(dataset, 1, 4))) < count / 4 * (40 + len(name.format(0)))


@pytest.mark.slow
def test_memory_of_a_listed_folder(tmp_path: Path) -> None:
    """The peak memory of listing a folder is the table and the names of one class."""
    count, per_class = 4000, 100
    names = [f"n{i // per_class:08d}/ILSVRC2012_val_{i:08d}.JPEG".encode() for i in range(count)]
    touched(tmp_path / "train", names)
    load_dataset(tmp_path / "train")  # the modules it needs
    held, peak = bytes_held(lambda: load_dataset(tmp_path / "train"))
    assert held < count * (40 + 28) + 20_000
    assert peak < held + per_class * 400 + 50_000
    (tmp_path / "val.txt").write_bytes(b"".join(b"train/%s %d\n" % (name, i % 7) for i, name in enumerate(names)))
    held, peak = bytes_held(lambda: load_dataset(tmp_path / "val.txt"))
    block = (tmp_path / "val.txt").stat().st_size  # of a long file: 4 MB
    assert peak < count * (40 + 28) + 3 * block + 100_000


WALK = """
import tracemalloc
from pathlib import Path
from utils.datasets import TableDataset, Sample

dataset = TableDataset(Sample(Path(f"d{i % 10}", f"{i:08d}.png"), i) for i in range(50_000))
tracemalloc.start()
assert sum(len(batch.names) for batch in dataset.batches(64)) == sum(1 for _ in dataset) == 50_000
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.slow
def test_iteration_needs_no_memory(run_python: RunPython) -> None:
    """In a separate process: pathlib interns names, and the interpreter's table of these grows by doubling."""
    done = run_python("-c", WALK)
    assert int(done.stdout) < 2_500_000, done.stderr
