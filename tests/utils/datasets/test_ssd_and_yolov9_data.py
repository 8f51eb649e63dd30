"""Loaders of scripts for SSD and YOLOv9: batches, and invalid images."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets import object_detection_dataset, yolov9m_dataset
from utils.datasets.ssd_dataset import VOCDataset, collate_fn

OBJECT = (
    "<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
    "<ymax>{}</ymax></bndbox></object>"
)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Return three images of 60 x 30 with a dog, the second with a difficult cat, and a list with a missing fourth."""
    root = tmp_path / "VOC2007"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    for number in range(3):
        name = f"{number:06}"
        Image.new("RGB", (60, 30), (40 * number, 10, 200)).save(root / "JPEGImages" / f"{name}.jpg")
        objects = OBJECT.format("dog", 0, 1, 1, 30, 15) + (
            OBJECT.format("cat", 1, 31, 1, 60, 30) if number == 1 else ""
        )
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    (root / "ImageSets" / "Main" / "test.txt").write_text("000000\n000001\n000002\n")
    (root / "ImageSets" / "Main" / "val.txt").write_text("000001\n000009\n")
    return root


def test_samples_of_voc(voc: Path) -> None:
    dataset = VOCDataset(voc, 40)
    assert (len(dataset), dataset.ids[2], dataset.class_names[:2]) == (3, "000002", ("__background__", "aeroplane"))
    image, target, place, _ = dataset[1]
    assert image is not None
    assert (image.shape, image.dtype, place) == ((3, 40, 40), np.uint8, 1)
    assert np.abs(image[:, 20, 20].astype(int) - [40, 10, 200]).max() < 6
    np.testing.assert_array_equal(target["boxes"], [[0, 0, 30, 15], [30, 0, 60, 30]])
    assert [dataset.class_names[label] for label in target["labels"]] == ["dog", "cat"]
    assert target["difficult"].tolist() == [False, True]
    assert dataset.size_of(1) == (60, 30)
    assert len(list(dataset)) == 3
    assert dataset[-1].image_id == 2


def test_a_batch_of_voc(voc: Path) -> None:
    dataset = VOCDataset(str(voc), "32")
    images, targets, places = collate_fn([dataset[0], dataset[2]])
    assert (tuple(images.shape), len(targets), [int(place) for place in places]) == ((2, 3, 32, 32), 2, [0, 2])
    assert str(images.dtype).endswith("uint8")


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_torchs_data_loader(voc: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    loader = DataLoader(VOCDataset(voc), batch_size=2, shuffle=False, collate_fn=collate_fn, num_workers=workers)
    batches = list(loader)
    assert [tuple(images.shape) for images, _, _ in batches] == [(2, 3, 320, 320), (1, 3, 320, 320)]
    assert all(isinstance(images, torch.Tensor) for images, _, _ in batches)


def test_images_that_cannot_be_decoded_are_skipped(voc: Path) -> None:
    file = voc / "JPEGImages" / "000001.jpg"
    file.write_bytes(file.read_bytes()[:300])
    dataset = VOCDataset(voc, 32)
    with pytest.warns(UserWarning, match=r"skipped: .*000001\.jpg: .*[Tt]runcated"):
        images, targets, places = collate_fn([dataset[place] for place in range(3)])
    assert (len(images), len(targets), [int(place) for place in places]) == (2, 2, [0, 2])
    with pytest.warns(UserWarning, match="skipped"):
        images, targets, places = collate_fn([dataset[1]])
    assert (tuple(images.shape), targets, len(places)) == ((1, 3, 32, 32), [], 0)


def test_invalid_list_entries_give_a_warning(voc: Path) -> None:
    with pytest.warns(UserWarning, match=r"1 images are skipped.*000009\.xml"):
        dataset = VOCDataset(voc, image_set="val")
    assert dataset.ids == ["000001"]


def test_other_classes_are_numbered_with_a_warning(voc: Path) -> None:
    for file in (voc / "Annotations").iterdir():
        file.write_text(file.read_text().replace("dog", "gnu").replace("cat", "emu"))
    with pytest.warns(UserWarning, match="1 emu, 2 gnu"):
        assert VOCDataset(voc).class_names == ("__background__", "emu", "gnu")


def test_the_parent_folder_with_one_year(voc: Path, tmp_path: Path) -> None:
    kit = tmp_path / "data" / "VOCdevkit"
    kit.mkdir(parents=True)
    (kit / "VOC2007").symlink_to(voc)
    for root in (kit, kit.parent, kit / "VOC2007"):
        assert VOCDataset(root, 32).ids == VOCDataset(voc, "32").ids
    (kit / "VOC2012").symlink_to(voc)
    with pytest.raises(DataError, match=r"VOC2007, VOC2012; .*VOC2007$"):
        VOCDataset(kit)


def test_invalid_folders_of_voc(voc: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere is missing"):
        VOCDataset(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"train\.txt .*\(test, val\)"):
        VOCDataset(voc, image_set="train")
    with pytest.raises(ConfigError, match="datashape 'big'"):
        VOCDataset(voc, "big")


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Return the list of three images with no, one and two objects."""
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    for number in range(3):
        Image.new("RGB", (60, 30)).save(tmp_path / "images" / f"{number}.jpg")
        (tmp_path / "labels" / f"{number}.txt").write_text("3 0.5 0.5 0.2 0.4\n" * number)
    (tmp_path / "val2017.txt").write_text("".join(f"./images/{number}.jpg\n" for number in range(3)))
    return tmp_path / "val2017.txt"


def test_images_with_few_objects_are_skipped(coco: Path) -> None:
    assert object_detection_dataset.create_dataloader is yolov9m_dataset.create_dataloader
    keywords = {"imgsz": 64, "batch_size": 2, "stride": 32, "workers": 0, "pad": 0.5, "prefix": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for least, rect in ((0, False), (1, False), (2, True)):
            loader, dataset = yolov9m_dataset.create_dataloader(coco, rect=rect, min_items=least, **keywords)
            assert [Path(file).stem for file in dataset.im_files] == ["0", "1", "2"][least:]
            batches = list(loader)
            assert sum(len(images) for images, *_ in batches) == 3 - least
            assert sum(len(targets) for _, targets, *_ in batches) == (2 if least == 2 else 3)
            images, _, _, shapes = batches[-1]
            assert tuple(images.shape[1:]) == ((3, 64, 96) if rect else (3, 64, 64))
            assert shapes[0][0] == (30, 60)


def test_invalid_min_items(coco: Path) -> None:
    with pytest.raises(DataError, match=r"7 objects.* 2; lower min_items"):
        yolov9m_dataset.create_dataloader(coco, 64, 2, 32, min_items=7)
    with pytest.raises(ConfigError, match="min_items -1"):
        yolov9m_dataset.create_dataloader(coco, 64, 2, 32, min_items=-1)
