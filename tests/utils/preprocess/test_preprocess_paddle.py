"""The Paddle preprocessing equals paddle.vision.transforms (PIL backend) bit by bit, if paddle is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.modes import MEAN, STD
from utils.preprocess.paddle.classification import preprocess
from utils.preprocess.pytorch.classification import preprocess as preprocess_pytorch

SHAPES = [(256, 224), (32, 32), (40, 61), (40, 63), ((50, 31), (20, 47)), ((31, 50), 40)]
SIZES = [(300, 200), (200, 300), (256, 256), (33, 97), (97, 33), (7, 5), (1, 9)]


def noise(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def transforms() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # paddle warns of a missing ccache on import
        return pytest.importorskip("paddle.vision.transforms")


@pytest.mark.parametrize(("resize", "crop"), SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_equals_paddle(transforms: Any, size: tuple[int, int], resize: Any, crop: Any) -> None:
    image = noise(size)
    steps = [transforms.Resize(resize), transforms.CenterCrop(crop), transforms.ToTensor()]
    expected = transforms.Compose([*steps, transforms.Normalize(list(MEAN), list(STD))])(image).numpy()
    np.testing.assert_array_equal(preprocess(image, "float32", resize, crop)[0], expected)
    np.testing.assert_array_equal(preprocess(image, "float16", resize, crop)[0], expected.astype(np.float16))


@pytest.mark.parametrize("size", SIZES)
def test_equals_pytorch_without_padding(size: tuple[int, int]) -> None:
    image = noise(size)
    np.testing.assert_array_equal(preprocess(image, "float32", 40, 33), preprocess_pytorch(image, "float32", 40, 33))


def test_padding_by_a_half_rounds_to_even() -> None:
    ours = preprocess(Image.new("RGB", (4, 4), (255, 255, 255)), "float32", 4, 7)[0, 0]
    assert np.argwhere(ours > 0).min() == 2  # paddle rounds -1.5 to -2 where torchvision floors to 1


def test_same_interface_and_errors() -> None:
    assert preprocess(image_path=[Image.new("L", (9, 9))] * 2).shape == (2, 3, 224, 224)
    with pytest.raises(ConfigError, match="unknown dtype"):
        preprocess(Image.new("L", (9, 9)), dtype="bfloat16")
