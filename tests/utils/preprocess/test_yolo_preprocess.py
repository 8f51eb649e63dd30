"""YOLO's historical preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError, InputError
from utils.datasets.folders import is_image
from utils.preprocess.image.letterbox import letterbox
from utils.preprocess.pytorch.yolo_pt import IMG_FORMATS, preprocess

Array = np.ndarray[Any, np.dtype[Any]]


def pixels(height: int, width: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def test_a_file_is_letterboxed(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(30, 90))
    image.save(tmp_path / "a.png")
    images, count, shapes = preprocess(str(tmp_path / "a.png"), 4, (64, 96))
    assert (images.shape, images.dtype, count, shapes) == ((4, 3, 64, 96), np.float32, 1, [(30, 90)])
    wanted = letterbox(image, (64, 96))[0]
    np.testing.assert_array_equal(images[0].transpose(1, 2, 0), wanted.astype(np.float32) / 255)
    assert (images[0, :, 0] == np.float32(114) / 255).all()
    assert not images[1:].any()
    half = preprocess(tmp_path / "a.png", 4, (64, 96), half=True)[0]
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, images.astype(np.float16))


def test_kinds_of_images_are_equivalent(tmp_path: Path) -> None:
    made = [pixels(40, 24), pixels(32, 32, 1)]
    for place, one in enumerate(made):
        Image.fromarray(one).save(tmp_path / f"{place}.png")
    files = [tmp_path / "0.png", str(tmp_path / "1.png")]
    images, count, shapes = preprocess(files, 2, 32)
    assert (images.shape, count, shapes) == ((2, 3, 32, 32), 2, [(40, 24), (32, 32)])
    np.testing.assert_array_equal(preprocess([Image.fromarray(one) for one in made], 2, 32)[0], images)
    np.testing.assert_array_equal(preprocess(tuple(made), 2, [32, 32])[0], images)
    np.testing.assert_array_equal(preprocess(made[0], 1, np.int64(32))[0], images[:1])


def test_a_loaders_batch_is_unchanged() -> None:
    batch = np.stack([pixels(32, 64, seed).transpose(2, 0, 1) for seed in range(3)])
    images, count, shapes = preprocess(batch, 4, (32, 64))
    assert (images.shape, count, shapes) == ((4, 3, 32, 64), 3, [(32, 64)] * 3)
    np.testing.assert_array_equal(images[:3], batch.astype(np.float32) / 255)
    assert preprocess(batch, 4, (32, 64), batch_padding=False)[0].shape == (3, 3, 32, 64)
    assert preprocess(batch, 2, (16, 16))[0].shape == (4, 3, 16, 16)  # the next multiple of the batch size
    with pytest.warns(UserWarning, match="more, stride"):
        preprocess(batch, 3, (32, 64), stride=32, more=1)


@pytest.mark.torch
def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    batch = np.stack([pixels(32, 64, seed).transpose(2, 0, 1) for seed in range(2)])
    images, count, _ = preprocess(torch.from_numpy(batch), 3, (32, 64), half=True)
    assert (images.dtype, tuple(images.shape), count) == (torch.float16, (3, 3, 32, 64), 2)
    np.testing.assert_array_equal(images.numpy(), preprocess(batch, 3, (32, 64), half=True)[0])
    assert isinstance(preprocess(batch, 3, (32, 64))[0], np.ndarray)
    assert isinstance(preprocess([torch.from_numpy(pixels(32, 64))], 1, (32, 64))[0], torch.Tensor)


def test_image_formats_equal_the_zoos() -> None:
    assert all(is_image(f"a.{ending}") for ending in IMG_FORMATS)
    assert {"jpg", "jpeg", "png", "bmp"} <= set(IMG_FORMATS)


def test_invalid_images(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(b"no image")
    for wrong, message in (
        (str(tmp_path / "a.jpg"), "a.jpg: no such image"),
        ([tmp_path / "b.jpg"], "b.jpg: is not an image"),
        ([], "list of images is empty"),
        (np.zeros((2, 3, 8, 8), np.float32), "inputs are float32 of shape"),
        (np.zeros((0, 3, 8, 8), np.uint8), "list of images is empty"),
        (np.zeros((8, 8), np.uint8), "image 0 is 8x8 of uint8"),
        ([np.zeros((8, 8, 4), np.uint8)], "image 0 is 8x8x4 of uint8"),
    ):
        with pytest.raises((DataError, InputError), match=message):
            preprocess(wrong, 1, 32)
    for size in (0, (32, -1), (1, 2, 3), 32.5, "32", (None, 3)):
        with pytest.raises(ConfigError, match="input_size"):
            preprocess(pixels(8, 8), 1, size)
    for batch_size in (0, "4", 2.5, None):
        with pytest.raises(ConfigError, match=f"batch_size {batch_size!r} must be"):
            preprocess(pixels(8, 8), batch_size, 32)  # type: ignore[arg-type]
