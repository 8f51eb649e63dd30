from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import DataError
from utils.datasets import TableDataset, load_dataset


def image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), "red").save(path)
    return path


def found(dataset: TableDataset) -> list[tuple[str, int | None]]:
    return [(sample.path.name, sample.label) for sample in dataset]


def test_class_folders(tmp_path: Path) -> None:
    image(tmp_path / "dog" / "1.png")
    image(tmp_path / "cat" / "2.png")
    dataset = load_dataset(str(tmp_path))
    assert found(dataset) == [("2.png", 0), ("1.png", 1)]
    assert dataset.classes == ["cat", "dog"]


def test_label_file_next_to_the_folder_it_lists(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        image(tmp_path / "val" / name)
    (tmp_path / "val.txt").write_text("val/1.png 65\nval/2.png 970\n")
    assert found(load_dataset(tmp_path)) == [("1.png", 65), ("2.png", 970)]
    assert found(load_dataset(tmp_path / "val.txt")) == [("1.png", 65), ("2.png", 970)]


def test_given_label_file(tmp_path: Path) -> None:
    image(tmp_path / "data" / "1.png")
    (tmp_path / "list.txt").write_text("1.png 4")
    assert found(load_dataset(tmp_path / "data", labels=tmp_path / "list.txt")) == [("1.png", 4)]
    with pytest.raises(DataError, match="which is not a folder"):
        load_dataset(tmp_path / "data" / "1.png", labels=tmp_path / "list.txt")


def test_flat_folder_with_a_text_file(tmp_path: Path) -> None:
    image(tmp_path / "1.png")
    (tmp_path / "notes.txt").write_text("no")
    dataset = load_dataset(tmp_path)
    assert found(dataset) == [("1.png", None)]
    assert [path.name for path, _ in dataset.rejected] == ["notes.txt"]


def test_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((3, 2)), y=[0, 1, 2])
    assert [sample.label for sample in load_dataset(tmp_path / "set.npz")] == [0, 1, 2]
    assert found(load_dataset(image(tmp_path / "1.JPG"))) == [("1.JPG", None)]


def test_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(tmp_path / "1.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found(load_dataset("~")) == [("1.png", None)]


def test_missing_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/gone does not exist"):
        load_dataset(tmp_path / "gone")
    with pytest.raises(DataError, match=r"is empty; .*\.jpg"):
        load_dataset(tmp_path)
    (tmp_path / "sub").mkdir()
    with pytest.raises(DataError, match=r"contains no image; .*\.jpg"):
        load_dataset(tmp_path)
    (tmp_path / "data.bin").write_bytes(b"no")
    with pytest.raises(DataError, match=r"data.bin: not an image file"):
        load_dataset(tmp_path / "data.bin")
