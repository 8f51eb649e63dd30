"""Pictures with objects: COCO's JSON, folders, single pictures, and bad files."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import DataError
from utils.datasets.boxes import load_boxes

CONTENT: dict[str, Any] = {
    "images": [
        {"id": 7, "file_name": "b.png"},
        {"id": 3, "file_name": "sub/a.png"},
        {"id": 9, "file_name": "gone.png"},
    ],
    "categories": [{"id": 20, "name": "dog"}, {"id": 2, "name": "cat"}],
    "annotations": [
        {"id": 1, "image_id": 3, "category_id": 20, "bbox": [1, 2, 3.5, 4]},
        {"id": 2, "image_id": 3, "category_id": 2, "bbox": [0, 0, 5, 5], "iscrowd": 1, "area": 25},
        {"id": 3, "image_id": 9, "category_id": 2, "bbox": [0, 0, 5, 5]},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("b.png", "sub/a.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "val.json").write_text(json.dumps(CONTENT))
    return tmp_path


def test_a_file_of_coco(folder: Path) -> None:
    found = load_boxes(folder / "val.json")
    batch = found.batch(range(2))
    assert batch.samples == [folder / "b.png", folder / "sub" / "a.png"]
    assert batch.names == [str(path) for path in batch.samples]
    assert batch.targets is not None
    nothing, real = batch.targets
    assert nothing.boxes.shape == (0, 4)
    assert real.boxes.tolist() == [[1, 2, 4.5, 6], [0, 0, 5, 5]]
    assert (real.boxes.dtype, real.classes.dtype) == (np.float64, np.int64)
    assert [real.categories[label] for label in real.classes] == ["dog", "cat"]
    assert real.categories == ("cat", "dog")
    assert real.crowd.tolist() == [False, True]
    (rejected,) = found.rejected
    assert rejected.path == folder / "gone.png"
    assert rejected.reason == "it does not exist but is listed in val.json"
    assert found.watched() == {str(folder / "val.json")}


def test_a_folder_is_read_through_its_file(folder: Path) -> None:
    assert load_boxes(folder).batch([0]).targets is not None
    (folder / "val.json").unlink()
    plain = load_boxes(folder)
    assert plain.batch([0]).targets is None
    assert plain.batch([0]).samples == [folder / "b.png"]
    assert [one.path.name for one in plain.rejected] == ["sub"]
    assert load_boxes(folder / "b.png").batch([0]).samples == [folder / "b.png"]


def test_the_fingerprint_sees_pictures_and_objects(folder: Path) -> None:
    first = load_boxes(folder).fingerprint()
    assert load_boxes(folder).fingerprint() == first
    os.utime(folder / "b.png", ns=(1, 1))
    second = load_boxes(folder).fingerprint()
    assert second != first
    changed = copy.deepcopy(CONTENT)
    changed["annotations"][0]["bbox"][0] = 2
    (folder / "val.json").write_text(json.dumps(changed))
    third = load_boxes(folder).fingerprint()
    assert third != second
    dataset = load_boxes(folder)
    (folder / "b.png").unlink()
    assert dataset.fingerprint() != third


def test_a_moved_data_set_keeps_its_fingerprint(folder: Path) -> None:
    first = load_boxes(folder).fingerprint()
    moved = folder.with_name("moved")
    folder.rename(moved)
    assert load_boxes(moved).fingerprint() == first


def broken(*path: Any, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(CONTENT)
    at = content
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "holds a list; it must be an object"),
        ({"categories": [], "annotations": []}, "'images' is missing"),
        (broken("annotations", value={}), "'annotations' is not a list"),
        (broken("images", 0, value=1), r"images\[0\] is not an object"),
        (broken("images", 0, "id", value=3), r"images\[1\]: id 3 stands twice"),
        (broken("images", 0, "id", value=None), r"images\[0\]: id None is no id"),
        (broken("images", 0, "file_name", value=""), "file_name '' is no path"),
        (broken("images", 0, "file_name", value="../x.png"), "leaves the data folder"),
        ({"images": [], "annotations": [], "categories": []}, "lists no image; list at least one"),
        (broken("images", value=[{"id": 3, "file_name": "val.json"}]), "image_id 9: no image has this id"),
        (broken("categories", 0, "id", value=2), r"categories\[1\]: id 2 stands twice"),
        (broken("categories", 0, "name", value="cat"), "name 'cat' is taken"),
        (broken("categories", 0, "name", value=1), "name 1 is no text"),
        (broken("annotations", 1, "image_id", value=4), r"annotations\[1\]: image_id 4: no image has this id"),
        (broken("annotations", 1, "category_id", value=True), "category_id True: no category"),
        (broken("annotations", 0, "bbox", value=[1, 2, 3]), r"bbox \[1, 2, 3\] is not \[left"),
        (broken("annotations", 0, "bbox", value=[1, 2, -3, 4]), "is not"),
        (broken("annotations", 0, "bbox", value=[1, 2, "3", 4]), "is not"),
    ],
)
def test_bad_files(content: Any, said: str, folder: Path) -> None:
    (folder / "val.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=said) as caught:
        load_boxes(folder / "val.json")
    assert "val.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_boxes(tmp_path / "no.json")
    (tmp_path / "bad.json").write_bytes(b"{\xff")
    with pytest.raises(DataError, match="is not JSON"):
        load_boxes(tmp_path / "bad.json")
    (tmp_path / "x.json").write_text(
        json.dumps({**CONTENT, "annotations": [], "images": [{"id": 1, "file_name": "x.txt"}]})
    )
    with pytest.raises(DataError, match=r"none of its 1 images can be used, the first: .*not a picture file"):
        load_boxes(tmp_path / "x.json")
    (tmp_path / "a.dat").write_text("")
    with pytest.raises(DataError, match="not a picture file"):
        load_boxes(tmp_path / "a.dat")
