"""Pipes, devices and decompression bombs instead of annotations: rejected without blocking or filling the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import DataError
from tests.fuzz.makers import sets_of_images as sets
from utils.arrays import read_npy, read_npz
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.coco import read_json
from utils.datasets.image.imagenet import _kaggle, _kit
from utils.datasets.image.lfw import load_pairs
from utils.datasets.image.masks import load_masks
from utils.datasets.image.pages import load_pages
from utils.datasets.image.regions import of_polygon, of_runs
from utils.datasets.image.text_lines import load_text_lines
from utils.datasets.image.wider_face import is_face_list, load_wider
from utils.datasets.image.yolo import load_yolo, mapping_of
from utils.datasets.label_file import load_label_file
from utils.datasets.loading import load_dataset
from utils.datasets.renaming import read_renames
from utils.postprocess.pytorch.classification import labels_from

READERS: dict[str, Callable[[Path], Any]] = {
    "a.json": read_json,
    "LOC_val_solution.csv": _kaggle,
    "kit.tar.gz": _kit,
    "val.txt": load_label_file,
    "pairs.txt": load_pairs,
    "Label.txt": lambda path: load_pages({"data": path}),
    "names.txt": read_renames,
    "rec_gt.txt": lambda path: load_text_lines({"data": path}),
    "a.npz": read_npz,
    "a.npy": read_npy,
    "data.yaml": lambda path: mapping_of(path, str(path), "names"),
    "labels.txt": labels_from,
    "faces.txt": load_wider,
    "instances.json": lambda path: load_boxes(path, "coco"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_does_not_block(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError):
        READERS[name](tmp_path / name)


def test_a_list_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "faces.txt")
    assert not is_face_list(tmp_path / "faces.txt")
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (tmp_path / name).mkdir(parents=True)
    os.mkfifo(tmp_path / "ImageSets" / "Segmentation" / "val.txt")
    with pytest.raises(DataError, match="it is a pipe"):
        load_masks({"data": tmp_path})


def test_a_label_file_that_is_a_pipe(tmp_path: Path) -> None:
    sets.yolo(tmp_path)
    os.mkfifo(tmp_path / "labels" / "val" / "lonely.txt")
    rejected = load_yolo(tmp_path).rejected
    assert [(one.path.name, one.reason) for one in rejected] == [("lonely.txt", "this label file has no image")]
    (tmp_path / "data.yaml").write_text("names: [a]\nval: list.txt\n")
    os.mkfifo(tmp_path / "list.txt")
    with pytest.raises(DataError, match="it is a pipe"):
        load_yolo(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a0: &a0 {x: 1}\n" + "".join(f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}]}}\n" for n in range(30)), "aliases"),
        ("names: [a]\nnames: [b]\n", "key 'names' is given twice"),
        ("x: !!timestamp x\n", "is not YAML"),
        ('x: !!int ""\n', "is not YAML"),
        ("x: !!bool x\n", "is not YAML"),
        ("x: 2001-01-01 00:00:00 +99:99\n", "is not YAML|names is"),
        ("x: " + "[" * 400, "is not YAML"),
    ],
)
def test_values_that_yaml_cannot_build(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        load_yolo(tmp_path / "data.yaml")


def test_many_names(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    names = ", ".join(f"n{place}" for place in range(2000))
    (tmp_path / "data.yaml").write_text(f"names: [{names}, n7]\nval: images\n")
    with pytest.raises(DataError, match="name 'n7' occurs twice"):
        load_yolo(tmp_path / "data.yaml")


def test_regions_with_huge_numbers() -> None:
    with pytest.raises(DataError, match="not a coordinate"):
        of_polygon([10**400, 1, 2, 3, 4, 5], 8, 8)
    with pytest.raises(DataError, match="not a coordinate"):
        of_polygon([float("nan"), 1, 2, 3, 4, 5], 8, 8)
    many = int("9" * 4300)
    with pytest.raises(DataError, match="thousands of digits"):
        of_runs([many, many], 8, 8)


@pytest.mark.parametrize("row", ["\u00b2", "1" * 5000, "1e3"])
def test_invalid_counts_of_faces(tmp_path: Path, row: str) -> None:
    file = sets.wider(tmp_path)[0]
    lines = file.read_text().split("\n")
    file.write_text("\n".join([lines[0], row, *lines[2:]]))
    first = load_wider(file).rejected[0]
    assert "is not the number of its faces" in first.reason


def test_faces_with_huge_coordinates(tmp_path: Path) -> None:
    file = sets.wider(tmp_path)[0]
    lines = file.read_text().split("\n")
    file.write_text("\n".join([*lines[:2], "1e308 1 1e308 2 0 0 0 0 0 0", *lines[3:]]))
    assert "infinite or at least 1e+09" in load_wider(file).rejected[0].reason


def test_a_kit_with_a_decompression_bomb(tmp_path: Path) -> None:
    import gzip
    import tarfile

    entry = tarfile.TarInfo("x/meta.mat")
    entry.size = 1 << 40
    (tmp_path / "kit.tar.gz").write_bytes(gzip.compress(entry.tobuf() + bytes(1024)))
    with pytest.raises(DataError, match="1099511627776 bytes"):
        _kit(tmp_path / "kit.tar.gz")


def test_names_that_are_too_long(tmp_path: Path) -> None:
    file = sets.pairs(tmp_path)[0]
    file.write_text(f"{'x' * 5000} 1 2\nann 1 2\nbob 1 2\n")
    found = load_pairs(file)
    assert len(found) == 2
    assert "has no folder" in found.rejected[0].reason
    (tmp_path / "val.txt").write_text(f"{'x' * 5000}.png 1\n")
    with pytest.raises(DataError, match="does not exist"):
        load_dataset(tmp_path)
