from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from utils.datasets import Sample, TableDataset, load_dataset, shard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/1.png", "a/2.png", "a/sub/3.png", "a/x\udcff.png"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode(errors="replace"))
    return tmp_path / "data"


def test_the_same_data_has_the_same_fingerprint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = load_dataset(folder).fingerprint()
    assert len(fingerprint) == 64
    assert int(fingerprint, 16)
    assert load_dataset(folder).fingerprint() == fingerprint
    monkeypatch.chdir(folder.parent)
    assert load_dataset("data").fingerprint() == fingerprint
    monkeypatch.chdir(folder)
    assert load_dataset(".").fingerprint() == fingerprint
    monkeypatch.chdir("/")
    folder.rename(folder.with_name("moved"))
    assert load_dataset(folder.with_name("moved")).fingerprint() == fingerprint
    shutil.copytree(folder.with_name("moved"), folder / "deep" / "copy")  # keeps the times
    assert load_dataset(folder / "deep" / "copy").fingerprint() == fingerprint


def changed(folder: Path, how: str) -> None:
    first, stat = folder / "a" / "2.png", (folder / "a" / "2.png").stat()
    if how == "size":
        first.write_bytes(b"another length")
        os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif how == "time":
        os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    elif how == "name":
        first.rename(first.with_name("2b.png"))
    elif how == "folder":
        first.rename(folder / "b" / "2.png")
    elif how == "one more":
        shutil.copy2(first, first.with_name("9.png"))
    elif how == "one less":
        first.unlink()


@pytest.mark.parametrize("how", ["size", "time", "name", "folder", "one more", "one less"])
def test_any_change_changes_the_fingerprint(folder: Path, how: str) -> None:
    before = load_dataset(folder).fingerprint()
    changed(folder, how)
    assert load_dataset(folder).fingerprint() != before


@pytest.mark.parametrize("how", ["size", "time", "name", "one less"])
def test_a_change_during_a_run_changes_the_fingerprint(folder: Path, how: str) -> None:
    dataset = load_dataset(folder)
    before = dataset.fingerprint()
    changed(folder, how)
    assert dataset.fingerprint() != before


def test_labels_and_order_count(folder: Path) -> None:
    samples = list(load_dataset(folder))
    others = [
        samples[::-1],
        [Sample(sample.path, None) for sample in samples],
        [Sample(sample.path, 1) for sample in samples],
        samples[:-1],
        [*samples, samples[-1]],
        [],
    ]
    prints = [TableDataset(some).fingerprint() for some in [samples, *others]]
    assert len(set(prints)) == len(prints)


def test_a_part_does_not_depend_on_the_rest(folder: Path) -> None:
    whole = load_dataset(folder)
    for rank in range(3):
        assert shard(whole, rank, 3).fingerprint() == TableDataset(list(whole)[rank::3]).fingerprint()
    assert len({shard(whole, rank, 3).fingerprint() for rank in range(3)}) == 3


def test_a_name_with_a_nul_counts_as_deleted() -> None:
    assert (
        TableDataset([Sample(Path("nu\0l.png"), 1)]).fingerprint()
        != TableDataset([Sample(Path("null.png"), 1)]).fingerprint()
    )


def test_rows_count_by_their_content(tmp_path: Path) -> None:
    rows, labels = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6)
    np.savez(tmp_path / "set.npz", x=rows, y=labels)
    whole = load_dataset(tmp_path / "set.npz")
    fingerprint = whole.fingerprint()
    os.utime(tmp_path / "set.npz", ns=(0, 0))
    (tmp_path / "moved").mkdir()
    np.savez_compressed(tmp_path / "moved" / "set.npz", x=rows, y=labels)
    assert load_dataset(tmp_path / "moved" / "set.npz").fingerprint() == fingerprint
    assert shard(whole, 0, 2).fingerprint() == shard(load_dataset(tmp_path / "set.npz"), 0, 2).fingerprint()
    other = rows.copy()
    other[5, 1] = 0
    for arrays in ({"x": other}, {"x": rows.astype(np.float64)}, {"x": rows.reshape(6, 1, 2)}, {"y": labels[::-1]}):
        np.savez(tmp_path / "set.npz", **{"x": rows, "y": labels, **arrays})
        assert load_dataset(tmp_path / "set.npz").fingerprint() != fingerprint
