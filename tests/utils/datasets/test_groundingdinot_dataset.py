"""COCO's images and objects for scripts of Grounding DINO."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import DataError, InputError
from engine.historical.declared import declare_shapes
from utils.datasets.groundingdinot_dataset import CocoDetection, collate_fn
from utils.preprocess.pytorch.classification import preprocess


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    declare_shapes(None)
    yield
    declare_shapes(None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return COCO's layout of two images of different sizes and a missing one."""
    folder = tmp_path / "images" / "val2017"
    folder.mkdir(parents=True)
    for name, size in (("a.png", (40, 20)), ("b.png", (30, 60))):
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)).save(folder / name)
    images = [{"id": key, "file_name": f"{name}.png"} for key, name in ((9, "b"), (4, "a"), (5, "gone"))]
    content: dict[str, Any] = {
        "images": images,
        "categories": [{"id": 11, "name": "x"}, {"id": 3, "name": "y"}],
        "annotations": [
            {"id": 1, "image_id": 4, "category_id": 11, "bbox": [10, 5, 20, 10], "iscrowd": 1, "area": 90},
            {"id": 2, "image_id": 4, "category_id": 3, "bbox": [0, 0, 40, 20]},
        ],
    }
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return tmp_path


def opened(data: Path) -> CocoDetection:
    with pytest.warns(UserWarning, match=r"1 entries .*gone\.png"):
        return CocoDetection(str(data / "images" / "val2017"), str(data / "annotations" / "instances_val2017.json"))


def test_samples(data: Path) -> None:
    dataset = opened(data)
    assert (len(dataset), dataset.ids, len(dataset.rejected)) == (2, [9, 4], 1)
    assert [category["name"] for category in dataset.coco.dataset["categories"]] == ["x", "y"]
    image, target = dataset[1]
    path = data / "images" / "val2017" / "a.png"
    assert np.array_equal(np.asarray(image), preprocess(path, "float32", (800, 800), (800, 800))[0])
    assert target["image_id"] == 4
    plain = {name: np.asarray(column).tolist() for name, column in target.items() if name != "image_id"}
    assert plain == {
        "boxes": [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]],
        "labels": [11, 3],
        "area": [90.0, 800.0],
        "iscrowd": [1, 0],
        "orig_size": [20, 40],
        "size": [800, 800],
    }
    assert np.asarray(dataset[0][1]["boxes"]).shape == (0, 4)


def test_images_have_the_size_of_the_engine(data: Path) -> None:
    declare_shapes([[1, 3, 64, 64], [2, 195]])
    dataset = opened(data)
    images, targets = collate_fn([dataset[0], dataset[1]])
    assert (tuple(images.tensors.shape), tuple(images.mask.shape)) == ((2, 3, 64, 64), (2, 64, 64))
    assert not np.asarray(images.mask).any()
    assert [target["image_id"] for target in targets] == [9, 4]


def test_images_of_several_sizes_are_padded() -> None:
    images, _ = collate_fn([(np.ones((3, 2, 4), np.float32), {}), (np.ones((3, 3, 1), np.float32), {})])
    tensors, mask = np.asarray(images.tensors), np.asarray(images.mask)
    assert tensors.shape == (2, 3, 3, 4)
    assert tensors.sum(axis=(1, 2, 3)).tolist() == [24, 9]
    assert mask.sum(axis=(1, 2)).tolist() == [4, 9]
    with pytest.raises(InputError, match="empty batch"):
        collate_fn([])


@pytest.mark.torch
def test_torchs_data_loader(data: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    loader = DataLoader(opened(data), batch_size=2, shuffle=False, num_workers=0, collate_fn=collate_fn)
    images, targets = next(iter(loader))
    assert images.tensors.shape == (2, 3, 800, 800)
    assert torch.stack([target["orig_size"] for target in targets]).tolist() == [[60, 30], [20, 40]]


def test_invalid_paths(data: Path) -> None:
    file = data / "annotations" / "instances_val2017.json"
    with pytest.raises(DataError, match="is not a folder"):
        CocoDetection(data / "none", file)
    with pytest.raises(DataError, match="cannot be read"):
        CocoDetection(data, data / "none.json")
    (data / "images" / "val2017" / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a\.png"):
        opened(data)[1]
