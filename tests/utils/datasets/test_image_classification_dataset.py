from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image_classification_dataset import load_data
from utils.datasets.sharding import RANK, SIZE

COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(RANK, raising=False)
    monkeypatch.delenv(SIZE, raising=False)
    for label, colour in enumerate(COLOURS):
        (tmp_path / f"c{label}").mkdir()
        Image.new("RGB", (4, 3), colour).save(tmp_path / f"c{label}" / "1.png")
    return tmp_path


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a torch imported by other tests, which would change the type of labels."""
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.torch
def test_labels_are_tensors_in_a_script_that_imported_torch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    torch = pytest.importorskip("torch")
    loader = load_data(root, 2)
    targets = [target for _, target in loader]
    assert all(isinstance(target, torch.Tensor) and target.dtype == torch.int64 for target in targets)
    assert torch.cat(targets).tolist() == [0, 1, 2]
    targets[0] += 5  # the script's own copy
    assert loader.dataset.labels.tolist() == [0, 1, 2]
    assert all(isinstance(batch.targets, np.ndarray) for batch in loader.batches)


def test_historical_loop(root: Path) -> None:
    loader = load_data(root, 2)
    assert len(loader) == 2
    seen = []
    for images, target in loader:
        assert all(isinstance(image, Image.Image) and image.mode == "RGB" for image in images)
        assert target.dtype == np.int64
        assert len(images) == len(target)
        seen += [(image.getpixel((0, 0)), int(label)) for image, label in zip(images, target, strict=True)]
    assert seen == [(colour, label) for label, colour in enumerate(COLOURS)]


def test_lazy_batches_have_the_same_samples(root: Path) -> None:
    loader = load_data(str(root), batch_size=2)
    assert [path for batch in loader.batches for path in batch.samples] == [sample.path for sample in loader.dataset]
    assert len(loader.batches) == len(loader)


def test_each_rank_gets_its_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE, "2")
    assert [sample.label for sample in load_data(root, 1, rank=1).dataset] == [1]
    monkeypatch.setenv(RANK, "0")
    assert [sample.label for sample in load_data(root, 1, rank=1).dataset] == [0, 2]


def test_one_image(root: Path) -> None:
    (image,) = load_data(str(root / "c1" / "1.png"), demo_infer=True)
    assert image.getpixel((0, 0)) == COLOURS[1]


def test_grey_becomes_rgb(tmp_path: Path) -> None:
    Image.new("L", (2, 2), 7).save(tmp_path / "grey.png")
    ((images, labels),) = load_data(tmp_path, 4)
    assert images[0].getpixel((0, 0)) == (7, 7, 7)
    assert labels is None


def test_rows_are_unchanged(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.ones((3, 2, 2)), y=[0, 1, 2])
    rows, labels = next(iter(load_data(tmp_path / "set.npz", 2)))
    assert [row.shape for row in rows] == [(2, 2), (2, 2)]
    assert labels.tolist() == [0, 1]


def test_the_error_for_a_damaged_image_has_the_path(root: Path) -> None:
    (root / "c1" / "1.png").write_bytes(b"no image")
    loader = iter(load_data(root, 1))
    next(loader)
    with pytest.raises(DataError, match=r"c1/1\.png"):
        next(loader)


def test_bad_arguments(root: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size 0"):
        load_data(root, 0)
    with pytest.raises(DataError, match="does not exist"):
        load_data(root / "gone", 1)
    with pytest.raises(DataError, match=r"gone.png"):
        load_data(root / "gone.png", demo_infer=True)
