"""The PyTorch preprocessing equals torchvision's bit by bit, and rejects invalid arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from engine import ConfigError, DataError
from utils.preprocess.image.modes import MEAN, STD
from utils.preprocess.pytorch.classification import preprocess

PHOTOS = ["astronaut", "chelsea", "coffee", "rocket", "camera", "coins", "logo"]  # RGB, RGBA and grey; bundled


def photo(name: str) -> Image.Image:
    data = pytest.importorskip("skimage.data")
    return Image.fromarray(getattr(data, name)())


@pytest.fixture(scope="session")
def transforms() -> Any:
    pytest.importorskip("torch")
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()
    from torchvision import transforms

    return transforms


def reference(transforms: Any, image: Image.Image, resize: Any, crop: Any) -> np.ndarray:
    steps = [transforms.Resize(resize), transforms.CenterCrop(crop), transforms.ToTensor()]
    result = transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])(image.convert("RGB"))
    return result.numpy()


@pytest.mark.torch
@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize(
    ("resize", "crop"), [(256, 224), (232, 224), (32, 32), (100, 131), ((90, 123), (64, 81)), ([40, 40], 64)]
)
def test_equals_torchvision(transforms: Any, name: str, resize: Any, crop: Any) -> None:
    image = photo(name)
    ours = preprocess(image, "float32", resize, crop)
    assert ours.dtype == np.float32
    assert ours.flags.c_contiguous
    theirs = reference(transforms, image, resize, crop)
    np.testing.assert_array_equal(ours[0], theirs)
    np.testing.assert_array_equal(preprocess(image, "float16", resize, crop)[0], theirs.astype(np.float16))


@pytest.mark.torch
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    resize=st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 60), st.integers(1, 60))),
    crop=st.one_of(st.integers(1, 70), st.tuples(st.integers(1, 70), st.integers(1, 70))),
    seed=st.integers(0, 9),
)
def test_equals_torchvision_at_any_size(transforms: Any, size: Any, resize: Any, crop: Any, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    np.testing.assert_array_equal(
        preprocess(image, "float32", resize, crop)[0], reference(transforms, image, resize, crop)
    )


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_equals_torchvision_for_every_mode(transforms: Any, mode: str) -> None:
    image = photo("chelsea").convert("L").convert(mode) if mode in ("LA", "PA") else photo("chelsea").convert(mode)
    np.testing.assert_array_equal(preprocess(image, "float32")[0], reference(transforms, image, 256, 224))


def test_known_values_without_torchvision() -> None:
    ours = preprocess(Image.new("RGB", (40, 30), (0, 128, 255)), "float32", 8, 6)
    expected = (np.array([0, 128, 255]) / 255 - MEAN) / STD
    np.testing.assert_allclose(ours, np.broadcast_to(expected[:, None, None], (1, 3, 6, 6)), rtol=1e-6)


def test_a_smaller_image_is_padded_with_black() -> None:
    ours = preprocess(Image.new("RGB", (4, 4), (255, 255, 255)), "float32", 4, 7)[0, 0]
    black, white = np.float32((0 - MEAN[0]) / STD[0]), np.float32((1 - MEAN[0]) / STD[0])
    assert np.argwhere(ours > 0).min() == 1  # torchvision floors the first half of three
    np.testing.assert_allclose(np.unique(ours), [black, white], rtol=1e-6)


def test_paths_images_and_lists_agree(tmp_path: Path) -> None:
    images = [photo(name).convert("RGB") for name in ("astronaut", "chelsea")]
    paths = [tmp_path / f"{index}.png" for index in range(2)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    batch = preprocess(images, resize_shape=64, crop_shape=(48, 56))
    assert batch.shape == (2, 3, 48, 56)
    assert batch.dtype == np.float16
    for mixed in (paths, [str(path) for path in paths], (str(paths[0]), images[1])):
        np.testing.assert_array_equal(preprocess(mixed, "float16", 64, (48, 56)), batch)
    np.testing.assert_array_equal(preprocess(image_path=str(paths[1]), resize_shape=64, crop_shape=(48, 56)), batch[1:])


@pytest.mark.parametrize("dtype", ["int8", "float64", "fp16", "", None])
def test_unknown_dtype(dtype: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown dtype .*float32, float16"):
        preprocess(Image.new("RGB", (4, 4)), dtype)


@pytest.mark.parametrize("shape", [0, -1, 2.5, True, "224", (1,) * 3, (4, 0), [], None])
@pytest.mark.parametrize("name", ["resize_shape", "crop_shape"])
def test_invalid_shape(name: str, shape: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        preprocess(Image.new("RGB", (4, 4)), **{name: shape})


def test_invalid_elements() -> None:
    with pytest.raises(DataError, match="empty list"):
        preprocess([])
    with pytest.raises(DataError, match="cannot preprocess a ndarray"):
        preprocess(np.zeros((4, 4, 3), np.uint8))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a int in the list"):
        preprocess([Image.new("RGB", (4, 4)), 3])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"missing\.png: no such image"):
        preprocess([Image.new("RGB", (4, 4)), "missing.png"])
    with pytest.raises(DataError, match="image 1: 0x4 has no pixels"):
        preprocess([Image.new("RGB", (4, 4)), Image.new("RGB", (0, 4))])


def test_a_strip_that_would_fill_the_memory() -> None:
    with pytest.raises(DataError, match=r"1x100000 .*256x25600000"):
        preprocess(Image.new("RGB", (1, 100_000)))
