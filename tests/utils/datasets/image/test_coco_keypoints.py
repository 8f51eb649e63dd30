"""COCO's JSON of key points: what is read of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.coco_keypoints import POINT_NAMES, SKELETON, load_keypoints
from utils.datasets.image.objects import IMAGE_IDS


def content(**changes: Any) -> dict[str, Any]:
    """Two images; an object with two labelled points of three, a crowd, one without points."""
    return {
        "images": [{"id": 7, "file_name": "b.png"}, {"id": 3, "file_name": "a.png"}],
        "categories": [{"id": 1, "name": "cat", "keypoints": ["x", "y", "z"], "skeleton": [[1, 2], [2, 3]]}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 1, "bbox": [1, 2, 30, 40], "area": 600, "iscrowd": 0,
             "keypoints": [5, 6, 2, 0, 0, 0, 8, 9.5, 1], "num_keypoints": 2},
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": 1, "keypoints": [5, 6, 2] * 3},
            {"id": 3, "image_id": 7, "category_id": 1, "bbox": [10, 12, 3, 4], "area": 12},
        ],
    } | changes  # fmt: skip


def written(folder: Path, made: Any, name: str = "val.json") -> Path:
    for image in ("a.png", "b.png"):
        Image.new("RGB", (64, 48)).save(folder / image)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(made))
    return folder


def test_points_boxes_and_notes(tmp_path: Path) -> None:
    found = load_keypoints(written(tmp_path, content()))
    assert [Path(name).name for name in found.names] == ["b.png", "a.png"]
    assert found.notes[POINT_NAMES] == ("x", "y", "z")
    assert found.notes[SKELETON] == ((0, 1), (1, 2))
    assert found.notes[IMAGE_IDS] == (3, 7)
    target = found.targets[0]
    np.testing.assert_array_equal(target.points[0], [[5, 6], [np.nan, np.nan], [8, 9.5]])
    assert np.isnan(target.points[2]).all()
    assert target.crowd.tolist() == [False, True, False]
    assert target.areas.tolist() == [600, 12, 12]
    # boxes for models of one object: neither crowds nor objects without labelled points
    np.testing.assert_array_equal(found.samples[0].boxes, [[1, 2, 31, 42]])
    assert found.samples[1].boxes.shape == (0, 4)
    assert (
        found.fingerprint()
        != load_keypoints(written(tmp_path, content(annotations=content()["annotations"][:1]))).fingerprint()
    )


def test_cocos_folders_and_plain_images(tmp_path: Path) -> None:
    written(tmp_path, content(), "annotations/person_keypoints_val2017.json")
    (tmp_path / "val2017").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(tmp_path / "val2017" / name)
    assert len(load_keypoints(tmp_path)) == 2
    plain = load_keypoints(tmp_path / "val2017")
    assert plain.targets is None
    assert [sample.boxes for sample in plain.samples] == [None, None]


def test_names_may_be_missing(tmp_path: Path) -> None:
    found = load_keypoints(written(tmp_path, content(categories=[{"id": 1, "name": "cat"}])))
    assert found.notes[POINT_NAMES] == ("0", "1", "2")


def test_a_stated_number_of_none_removes_the_points(tmp_path: Path) -> None:
    one = {**content()["annotations"][0], "num_keypoints": 0}
    assert np.isnan(load_keypoints(written(tmp_path, content(annotations=[one]))).targets[0].points).all()


@pytest.mark.parametrize(
    "keypoints", [[1, 2], [1, 2, 3] * 3, [1, 2, "2"] * 3, [float("nan"), 2, 2] * 3, {"x": 1}, [1, 2, 2] * 4]
)
def test_invalid_points_reject_their_image(tmp_path: Path, keypoints: Any) -> None:
    one = {**content()["annotations"][0], "keypoints": keypoints}
    found = load_keypoints(written(tmp_path, content(annotations=[one])))
    assert [Path(name).name for name in found.names] == ["a.png"]
    assert [one.path.name for one in found.rejected] == ["b.png"]
    assert "annotations[0]" in found.rejected[0].reason


@pytest.mark.parametrize(
    "categories",
    [
        [{"id": 1, "name": "cat", "keypoints": "x"}],
        [{"id": 1, "name": "cat", "keypoints": ["x"], "skeleton": [[0, 1]]}],
        [{"id": 1, "name": "cat", "keypoints": ["x"]}, {"id": 2, "name": "dog", "keypoints": ["y"]}],
    ],
)
def test_invalid_categories(tmp_path: Path, categories: Any) -> None:
    with pytest.raises(DataError, match=r"val\.json"):
        load_keypoints(written(tmp_path, content(categories=categories)))


def test_other_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_keypoints(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="unknown data format"):
        load_keypoints(tmp_path, "voc")
    with pytest.raises(DataError, match="no JSON file"):
        load_keypoints(tmp_path, "coco")
    boxes = content(categories=[{"id": 1, "name": "cat"}], annotations=content()["annotations"][2:])
    with pytest.raises(DataError, match="keypoints"):
        load_keypoints(written(tmp_path, boxes))
