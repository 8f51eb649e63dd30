"""Historical preprocessing of SSD and YOLOv9: files, images and a loader's batches give the same input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError, InputError
from utils.preprocess.pytorch import detection, ssd, yolov9m

LEVELS = np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Image.fromarray(LEVELS).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def test_ssd_stretches_and_subtracts_the_mean(file: Path) -> None:
    made = ssd.preprocess(str(file), resize_shape=40)
    assert (made.shape, made.dtype) == ((1, 3, 40, 40), np.float32)
    back = made[0].transpose(1, 2, 0) + np.array([123, 117, 104])
    wanted = np.repeat(LEVELS, 2, axis=0).astype(float)  # a row lies a quarter from each of its two
    wanted[1:-1:2], wanted[2::2] = (
        0.75 * wanted[1:-1:2] + 0.25 * wanted[2::2],
        0.75 * wanted[2::2] + 0.25 * wanted[1:-1:2],
    )
    np.testing.assert_allclose(back, wanted, atol=0.51)
    assert ssd.preprocess(file).shape == (1, 3, 320, 320)


def test_yolo_letterboxes_to_0_1(file: Path) -> None:
    made = yolov9m.preprocess(file, resize_shape=40)
    assert (made.shape, made.dtype) == ((1, 3, 40, 40), np.float32)
    np.testing.assert_array_equal(np.rint(made[0, :, 10:30] * 255), LEVELS.transpose(2, 0, 1))
    np.testing.assert_allclose(made[0, :, :10] * 255, 114, rtol=1e-6)
    assert yolov9m.preprocess(file).shape == (1, 3, 640, 640)
    assert detection.preprocess is yolov9m.preprocess


@pytest.mark.parametrize("face", [ssd, yolov9m])
def test_files_images_and_batches_are_equivalent(face: Any, file: Path) -> None:
    square = LEVELS[:, :20]
    batch = square.transpose(2, 0, 1)[None]
    image = Image.fromarray(square)
    for given in (image, square, [image], batch):
        np.testing.assert_array_equal(face.preprocess(given, resize_shape=20), face.preprocess(batch))
    assert face.preprocess([file, image], resize_shape=(20, 30)).shape == (2, 3, 20, 30)
    half = face.preprocess(batch, half=True)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, face.preprocess(batch), rtol=1e-3, atol=1e-3)


@pytest.mark.torch
@pytest.mark.parametrize("face", [ssd, yolov9m])
def test_a_tensor_gives_a_tensor(face: Any) -> None:
    torch = pytest.importorskip("torch")
    batch = np.ascontiguousarray(LEVELS.transpose(2, 0, 1)[None])
    made = face.preprocess(torch.from_numpy(batch), half=True)
    assert made.dtype == torch.float16
    np.testing.assert_array_equal(made.numpy(), face.preprocess(batch, half=True))


@pytest.mark.parametrize("face", [ssd, yolov9m])
def test_invalid_images(face: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.jpg: no such image"):
        face.preprocess(tmp_path / "missing.jpg")
    with pytest.raises(DataError, match="list of images is empty"):
        face.preprocess([])
    with pytest.raises(InputError, match="float32; pass uint8"):
        face.preprocess(np.zeros((1, 3, 8, 8), np.float32))
    with pytest.raises(InputError, match="8x8 of uint8"):
        face.preprocess(np.zeros((8, 8), np.uint8))
    for size in (0, "wide", (3, 4, 5)):
        with pytest.raises(ConfigError, match=r"resize_shape .* is not a size"):
            face.preprocess(LEVELS, resize_shape=size)
