"""COCO's JSON of instances for masks of objects: what is read of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.instances import load_instances


def content(*regions: Any) -> dict[str, Any]:
    """An image with an object per region."""
    annotations = [
        {"id": place, "image_id": 1, "category_id": 1, "bbox": [2, 3, 10, 12], "segmentation": region}
        for place, region in enumerate(regions)
    ]
    images = [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}]
    return {"images": images, "categories": [{"id": 1, "name": "cat"}], "annotations": annotations}


def written(folder: Path, made: Any, name: str = "val.json") -> Path:
    for image in ("a.png", "b.png"):
        Image.new("RGB", (30, 20)).save(folder / image)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(made))
    return folder


def test_polygons_and_run_lengths(tmp_path: Path) -> None:
    square = [[2, 3, 12, 3, 12, 15, 2, 15]]
    runs = {"size": [20, 30], "counts": [40, 20, 540]}
    found = load_instances(written(tmp_path, content(square, runs)))
    first, second = found.samples[0].masks((20, 30))
    assert (first.top, first.left, first.area) == (3, 2, 120)
    assert (second.top, second.left, second.area) == (0, 2, 20)
    np.testing.assert_array_equal(np.flatnonzero(second.whole((20, 30)).any(axis=0)), [2])
    assert found.samples[1].masks((20, 30)) == ()
    assert found.targets[0].boxes.tolist() == [[2, 3, 12, 15]] * 2
    other = [[2, 3, 12, 3, 12, 15, 2, 14]]
    assert found.fingerprint() != load_instances(written(tmp_path, content(other, runs))).fingerprint()


def test_regions_are_checked_with_their_image(tmp_path: Path) -> None:
    found = load_instances(written(tmp_path, content([[1, 2]], {"size": [30, 20], "counts": [600]})))
    with pytest.raises(DataError, match="object 0"):
        found.samples[0].masks((20, 30))


@pytest.mark.parametrize("region", [None, [], "x", 3])
def test_objects_without_regions_reject_their_image(tmp_path: Path, region: Any) -> None:
    found = load_instances(written(tmp_path, content(region)))
    assert [one.path.name for one in found.rejected] == ["a.png"]
    assert [sample.image.name for sample in found.samples] == ["b.png"]


def test_cocos_folders_and_other_paths(tmp_path: Path) -> None:
    written(tmp_path, content(), "annotations/instances_val2017.json")
    (tmp_path / "val2017").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(tmp_path / "val2017" / name)
    assert len(load_instances(tmp_path)) == 2
    plain = load_instances(tmp_path / "val2017")
    assert plain.targets is None
    assert [sample.regions for sample in plain.samples] == [None, None]
    with pytest.raises(DataError, match="no JSON file"):
        load_instances(tmp_path / "val2017", "coco")
    with pytest.raises(ConfigError, match="unknown data format"):
        load_instances(tmp_path, "voc")
