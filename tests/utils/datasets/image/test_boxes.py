"""Images with objects: COCO's JSON, folders, single images, and invalid files."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import DataError
from utils.datasets.image.boxes import load_boxes

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
    assert found.source_files() == {str(folder / "val.json")}


def test_a_folder_is_loaded_through_its_file(folder: Path) -> None:
    assert load_boxes(folder).batch([0]).targets is not None
    (folder / "val.json").unlink()
    plain = load_boxes(folder)
    assert plain.batch([0]).targets is None
    assert plain.batch([0]).samples == [folder / "b.png"]
    assert [one.path.name for one in plain.rejected] == ["sub"]
    assert load_boxes(folder / "b.png").batch([0]).samples == [folder / "b.png"]


def test_fingerprint_covers_images_and_objects(folder: Path) -> None:
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
    ("content", "expected_error"),
    [
        ([], "contains a list"),
        ({"categories": [], "annotations": []}, "'images' is missing"),
        (broken("annotations", value={}), "'annotations' is not a list"),
        (broken("images", value=CONTENT["images"][:1] * 2), r"none of its images .* 4 .*id 7"),
        ({"images": [], "annotations": [], "categories": []}, "lists no image"),
        (broken("images", value=[{"id": 3, "file_name": "val.json"}]), "image_id 9"),
        (broken("categories", 0, "id", value=2), r"categories\[1\]: id 2 occurs twice"),
        (broken("categories", 0, "name", value="cat"), "name 'cat' is already used"),
        (broken("categories", 0, "name", value=1), "name 1 is not a text"),
        (broken("categories", 0, "name", value="\ud800"), "is not a text"),
    ],
)
def test_invalid_files(content: Any, expected_error: str, folder: Path) -> None:
    (folder / "val.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=expected_error) as caught:
        load_boxes(folder / "val.json")
    assert "val.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "at", "expected_error"),
    [
        (broken("images", 0, "id", value=None), "val.json", r"images\[0\]: id None is not an id"),
        (broken("images", 0, "file_name", value=""), "val.json", "file_name '' is not a path"),
        (broken("images", 0, "file_name", value="\ud800.png"), "val.json", "is not a path"),
        (broken("images", 0, "file_name", value="a" * 999 + ".png"), "png", "does not exist but is listed"),
        (broken("images", 0, "file_name", value="../x.png"), "val.json", "leaves the data folder"),
        (broken("images", 0, "file_name", value="/etc/x.png"), "val.json", "leaves the data folder"),
        (broken("images", 0, "id", value=9), "val.json", r"images\[2\]: id 9 occurs twice"),
        (broken("annotations", 2, "image_id", value=4), "val.json", r"annotations\[2\]: image_id 4"),
        (broken("annotations", 2, "image_id", value=[]), "val.json", r"image_id \[\]"),
        (broken("annotations", 1, "category_id", value=True), "a.png", "category_id True: no category"),
        (broken("annotations", 1, "category_id", value=91), "a.png", "category_id 91"),
        (broken("annotations", 0, "bbox", value=[1, 2, 3]), "a.png", r"annotations\[0\]: bbox \[1, 2, 3\]"),
        (broken("annotations", 0, "bbox", value=[1, 2, -3, 4]), "a.png", "is not"),
        (broken("annotations", 0, "bbox", value=[1, 2, "3", 4]), "a.png", "is not"),
        (broken("annotations", 0, "bbox", value=[1, float("nan"), 3, 4]), "a.png", r"bbox \[1, nan, 3, 4\] is not"),
        (broken("annotations", 0, "bbox", value=[1, 1e300, 3, 4]), "a.png", "is not"),
        (broken("annotations", 1, "iscrowd", value="1"), "a.png", r"annotations\[1\]: iscrowd '1'"),
        (broken("annotations", 1, "iscrowd", value=[1]), "a.png", r"iscrowd \[1\]"),
        (broken("annotations", 1, "area", value="25"), "a.png", "area '25' is not a number"),
        (broken("annotations", 1, "area", value=-1), "a.png", "area -1 is not a number"),
        (broken("annotations", 1, "area", value=float("nan")), "a.png", "area nan is not a number"),
    ],
)
def test_an_invalid_entry_rejects_only_its_image(content: Any, at: str, expected_error: str, folder: Path) -> None:
    (folder / "val.json").write_text(json.dumps(content))
    found = load_boxes(folder / "val.json")
    (entry,) = [one for one in found.rejected if one.path.name != "gone.png"]
    assert entry.path.name.endswith(at)
    assert re.search(expected_error, entry.reason)
    assert "\n" not in entry.reason
    assert len(found) == 1 + ("image_id" in expected_error)


def test_entries_that_are_not_objects(folder: Path) -> None:
    content = copy.deepcopy(CONTENT)
    content["images"][2] = 5
    content["annotations"][2] = None
    (folder / "val.json").write_text(json.dumps(content))
    found = load_boxes(folder / "val.json")
    assert sorted(one.reason for one in found.rejected) == [
        "annotations[2] is None, not an object",
        "images[2] is 5, not an object",
    ]
    assert len(found) == 2


def test_an_image_with_two_ids_is_counted_in_a_warning(folder: Path) -> None:
    content = copy.deepcopy(CONTENT)
    content["images"][2]["file_name"] = "b.png"
    (folder / "val.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="several ids: 1 "):
        assert len(load_boxes(folder / "val.json")) == 3


def test_suspicious_entries_are_used_with_a_warning(folder: Path) -> None:
    content = copy.deepcopy(CONTENT)
    content["images"][1] |= {"width": 9, "height": 8}
    content["annotations"][0]["bbox"] = [-5, 0, 4, 4]
    content["annotations"][1] |= {"bbox": [1, 1, 0, 4], "id": 1, "area": None}
    (folder / "val.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="val.json: .*: 1 ") as expected_error:
        found = load_boxes(folder / "val.json")
    words = sorted(str(one.message).partition("val.json: ")[2].partition(" ")[0] for one in expected_error)
    assert words == ["annotations", "boxes", "images", "objects"]
    (real,) = [one for one in found.targets or () if len(one.boxes)]
    assert real.boxes.tolist() == [[-5, 0, -1, 4], [1, 1, 1, 5]]
    assert found.notes == {
        "categories": ("cat", "dog"),
        "objects": [1, 1],
        "category_ids": (2, 20),
        "image_ids": (3, 7, 9),
    }


def test_areas_are_those_of_the_annotation(folder: Path) -> None:
    content = copy.deepcopy(CONTENT)
    content["annotations"][0]["area"] = 7.5
    (folder / "val.json").write_text(json.dumps(content))
    nothing, real = load_boxes(folder / "val.json").targets or ()
    assert real.areas is not None
    assert real.areas.tolist() == [7.5, 25]
    assert nothing.areas is None
    assert (nothing.number, real.number) == (1, 0)  # by id, as in pycocotools


@pytest.mark.parametrize("images", ["val2017", "images/val2017", "images"])
@pytest.mark.parametrize("given", ["", "annotations/instances_val2017.json"])
def test_cocos_own_layout(images: str, given: str, tmp_path: Path) -> None:
    for name in ("annotations", images):
        (tmp_path / name).mkdir(parents=True)
    for name in ("instances_val2017", "instances_train2017", "captions_val2017"):
        content = {**CONTENT, "images": [{"id": 3, "file_name": "a.png"}], "annotations": CONTENT["annotations"][:2]}
        (tmp_path / "annotations" / f"{name}.json").write_text(json.dumps(content))
    Image.new("RGB", (8, 8)).save(tmp_path / images / "a.png")
    found = load_boxes(tmp_path / given)
    assert found.samples == [tmp_path / images / "a.png"]
    assert not found.rejected
    (tmp_path / "annotations" / "instances_val2014.json").write_text(json.dumps(CONTENT))
    with pytest.raises(DataError, match=r"val2014.json, .*val2017.json"):
        load_boxes(tmp_path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_boxes(tmp_path / "no.json")
    (tmp_path / "bad.json").write_bytes(b"{\xff")
    with pytest.raises(DataError, match="is not JSON"):
        load_boxes(tmp_path / "bad.json")
    (tmp_path / "x.json").write_text(
        json.dumps({**CONTENT, "annotations": [], "images": [{"id": 1, "file_name": "x.txt"}]})
    )
    with pytest.raises(DataError, match=r"none of .*not an image"):
        load_boxes(tmp_path / "x.json")
    (tmp_path / "a.dat").write_text("")
    with pytest.raises(DataError, match="not an image file"):
        load_boxes(tmp_path / "a.dat")
