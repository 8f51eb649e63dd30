"""Data loader of scripts for YOLO."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.yolo_pt_dataset import create_dataloader
from utils.postprocess.pytorch.yolo_pt import scale_boxes, xywh2xyxy
from utils.torch_array import TorchArray

SIZES = ((80, 40), (40, 80), (64, 64), (100, 33), (20, 10))


@pytest.fixture(autouse=True)
def _no_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a torch imported by other tests, except in tests that need it."""
    if request.node.get_closest_marker("torch"):
        pytest.importorskip("torch")
    else:
        monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return COCO's layout with YOLO's labels: five images of one colour each, the last without labels."""
    images, labels = tmp_path / "images" / "val2017", tmp_path / "labels" / "val2017"
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    for place, size in enumerate(SIZES):
        Image.new("RGB", size, (50 * place, 0, 200)).save(images / f"{place}.png")
        lines = [f"{place} 0.5 0.5 0.5 0.25", f"{place + 1} 0.1 0.2 0.2 0.4"]
        if place < 4:
            (labels / f"{place}.txt").write_text("\n".join(lines[: 1 + place % 2]))
    (labels / "4.txt").write_text("")
    (tmp_path / "val2017.txt").write_text("".join(f"./images/val2017/{place}.png\n" for place in range(5)))
    return tmp_path


def check(batch: Any, size: tuple[int, int] = (64, 64)) -> None:
    """Check that objects match the labels and images match the shapes."""
    images, targets, paths, shapes = batch
    assert (images.dtype, images.shape) == (np.uint8, (len(paths), 3, *size))
    assert (targets.dtype, targets.shape[1]) == (np.float32, 6)
    for place, (path, (original, placed)) in enumerate(zip(paths, shapes, strict=True)):
        number = int(Path(path).stem)
        width, height = SIZES[number]
        assert original == (height, width)
        own = targets[targets[:, 0] == place, 1:]
        assert own[:, 0].tolist() == ([], [number, number + 1], [number])[0 if number == 4 else 2 - number % 2]
        if len(own):
            boxes = xywh2xyxy(own[:, 1:] * [size[1], size[0], size[1], size[0]])
            scale_boxes(size, boxes, original, placed)
            wanted = [[0.25 * width, 0.375 * height, 0.75 * width, 0.625 * height], [0, 0, 0.2 * width, 0.4 * height]]
            np.testing.assert_allclose(boxes, wanted[: len(own)], atol=1e-3)
        (down, across), (left, top) = placed
        inside = np.zeros(size, bool)
        inside[top : top + round(height * down), left : left + round(width * across)] = True
        image = np.asarray(images[place])
        assert (image[:, inside] == np.array([[50 * number], [0], [200]])).all()
        assert (image[:, ~inside] == 114).all()


@pytest.mark.parametrize("workers", [0, 3])
def test_batches(data: Path, workers: int) -> None:
    loader, dataset = create_dataloader(str(data / "val2017.txt"), 64, 2, 32, workers=workers, prefix="val: ")
    assert (len(loader), len(dataset), loader.dataset is dataset) == (3, 5, True)
    assert [Path(name).name for name in dataset.im_files] == [f"{place}.png" for place in range(5)]
    for _ in range(2):  # any number of times
        batches = list(loader)
        assert [len(batch[2]) for batch in batches] == [2, 2, 1]
        assert [name for batch in batches for name in batch[2]] == dataset.im_files
        for batch in batches:
            check(batch)
            assert type(batch[0]) is type(batch[1]) is TorchArray
    assert batches[2][1].shape == (0, 6)
    assert list(batches[0][3][0][1][0]) == [0.8, 0.8]


@pytest.mark.parametrize("given", ["folder", "list", "absolute", "files"])
def test_kinds_of_paths(data: Path, given: str) -> None:
    files = [data / "images" / "val2017" / f"{place}.png" for place in range(5)]
    (data / "all.txt").write_text("\n".join(map(str, files)))
    path: Any = {"folder": data, "list": data / "val2017.txt", "absolute": data / "all.txt", "files": files}[given]
    loader, dataset = create_dataloader(path, (64, 96), 5, 32, workers=0)
    assert dataset.im_files == [str(file) for file in files]
    (batch,) = loader
    check(batch, (64, 96))


def test_rect_batches_have_the_aspect_ratio_of_their_images(data: Path) -> None:
    loader, dataset = create_dataloader(data / "val2017.txt", 64, 2, 16, rect=True, workers=0)
    assert [Path(name).stem for name in dataset.im_files] == ["3", "0", "4", "2", "1"]
    batches = list(loader)
    assert [batch[0].shape[2:] for batch in batches] == [(32, 64), (64, 64), (64, 32)]
    for batch in batches:
        check(batch, batch[0].shape[2:])
    padded, _ = create_dataloader(data / "val2017.txt", 64, 2, 16, rect=True, pad=0.5, workers=0)
    shapes = [batch[0].shape[2:] for batch in padded]
    assert shapes == [(48, 80), (80, 80), (80, 48)]
    for batch in padded:
        check(batch, batch[0].shape[2:])  # a larger input does not enlarge an image
        assert batch[3][0][1][0] == pytest.approx([64 / max(batch[3][0][0])] * 2, abs=0.02)


def test_one_class(data: Path) -> None:
    loader, _ = create_dataloader(data / "val2017.txt", 64, 5, 32, True, workers=0)
    (batch,) = loader
    assert len(batch[1]) == 6
    assert not batch[1][:, 1].any()


def test_cached_images_are_read_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, _ = create_dataloader(data / "val2017.txt", 64, 2, 32, cache=True, workers=2)
    first = list(loader)
    monkeypatch.setattr("utils.datasets.yolo_pt_dataset.open_image", None)
    second = list(loader)
    first[0][1][:] = 7  # a script writes into its batch
    for one, other in zip(first[1:], second[1:], strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    check(second[0])


def test_shuffled_epochs_differ_and_runs_do_not(data: Path) -> None:
    def orders() -> list[list[str]]:
        loader, _ = create_dataloader(data, 64, 2, 32, shuffle=True, workers=0)
        return [[name for batch in loader for name in batch[2]] for _ in range(3)]

    first = orders()
    assert first == orders()
    assert len({tuple(order) for order in first}) > 1
    assert all(sorted(order) == sorted(first[0]) for order in first)


def test_damaged_images_are_skipped(data: Path) -> None:
    images = data / "images" / "val2017"
    broken = images / "1.png"
    broken.write_bytes(broken.read_bytes()[:45])  # its header is complete
    (data / "labels" / "val2017" / "2.txt").write_text("0 0.5 0.5")
    with (data / "val2017.txt").open("a") as file:
        file.write("./images/val2017/gone.png\n")
    with pytest.warns(UserWarning, match=r"val: .*2, .*2\.png.*2\.txt, line 1"):
        loader, dataset = create_dataloader(data / "val2017.txt", 64, 2, 32, workers=2, prefix="val: ")
    with pytest.warns(UserWarning, match=r"1\.png: .*\(skipped\)"):
        batches = list(loader)
    assert [[Path(name).stem for name in batch[2]] for batch in batches] == [["0"], ["3", "4"]]
    for batch in batches:
        check(batch)
    assert list(loader)  # one warning
    assert [Path(one.path).name for one in dataset.rejected] == ["2.png", "gone.png", "1.png"]
    for file in images.iterdir():
        file.write_bytes(file.read_bytes()[:45])
    with (
        pytest.warns(UserWarning, match="skipped"),
        pytest.raises(DataError, match=r"none of 4 images .*0\.png"),
    ):
        list(loader)


def test_a_rect_batch_without_the_size_of_an_image(data: Path) -> None:
    (data / "images" / "val2017" / "4.png").write_bytes(b"nothing of an image")
    with pytest.warns(UserWarning, match=r"skipped files: 1, .*4\.png"):
        loader, dataset = create_dataloader(data / "val2017.txt", 64, 2, 16, rect=True, workers=0)
    assert len(dataset) == 4
    assert sum(len(batch[2]) for batch in loader) == 4


def test_images_without_labels_give_a_warning(data: Path) -> None:
    (data / "labels" / "val2017" / "0.txt").unlink()
    with pytest.warns(UserWarning, match="without a label file: 1"):
        loader, _ = create_dataloader(data / "val2017.txt", 64, 5, 32, workers=0)
    (batch,) = loader
    assert (batch[1][:, 0] != 0).all()


def test_processes_share_the_images(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    parts = [create_dataloader(data, 64, 2, 32, rank=rank, workers=0)[1].im_files for rank in (0, 1)]
    assert [[Path(name).stem for name in part] for part in parts] == [["0", "2", "4"], ["1", "3"]]
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "6")
    loader, dataset = create_dataloader(data, 64, 2, 32, rank=5, workers=0)
    assert (len(loader), len(dataset), list(loader)) == (0, 0, [])


def test_training_arguments_give_a_warning(data: Path) -> None:
    words = r"val: create_dataloader does not use augment=True, hyp=\{'mosaic': 1\}, image_weights=True, quad=True"
    with pytest.warns(UserWarning, match=f"{words}, cache=disk, shuffle with rect=True"):
        create_dataloader(
            *(data, 64, 2, 32, False, {"mosaic": 1}, True, "disk"),
            rect=True,
            image_weights=True,
            quad=True,
            prefix="val: ",
            shuffle=True,
        )


WRONG = ({"batch_size": "4"}, {"batch_size": None}, {"stride": 2.5}, {"pad": None}, {"workers": None})


def test_invalid_arguments(data: Path) -> None:
    (data / "empty.txt").write_text("\n")
    (data / "zero.txt").write_text("a\0b.png\n")
    (data / "notes.md").write_text("")
    for path, words in (
        (data / "nothing", "nothing does not exist"),
        (data / "empty.txt", "lists no image"),
        (data / "zero.txt", "is not a path"),
        (data / "notes.md", "is neither a folder"),
        ("a" * 5000, "does not exist"),
        ([], "path is an empty list"),
        ("", "path is ''"),
        (None, "path is None"),
        ([None], r"path is \[None\]"),
        (data / "labels", "lists no image"),
    ):
        with pytest.raises(DataError, match=words):
            create_dataloader(path, 64, 2, 32)
    for wrong in ({"imgsz": 0}, {"imgsz": (1, 2, 3)}, {"batch_size": 0}, {"stride": 0}, {"pad": -1}, *WRONG):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            create_dataloader(**{"path": data, "imgsz": 64, "batch_size": 2, "stride": 32, **wrong})


@pytest.mark.torch
def test_scripts_with_torch_get_tensors(data: Path) -> None:
    torch = sys.modules["torch"]
    loader, _ = create_dataloader(data, 64, 5, 32)
    ((images, targets, _, _),) = loader
    assert (images.dtype, targets.dtype) == (torch.uint8, torch.float32)
    assert images.numpy().shape == (5, 3, 64, 64)
    targets[:, 2:] *= torch.tensor((64, 64, 64, 64))
    assert targets[0, 2:].tolist() == [32, 32, 32, 8]
