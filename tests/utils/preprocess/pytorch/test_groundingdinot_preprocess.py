"""Inputs of a grounding detector from a path, an array or a tensor."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from grounding_model import write_tokenizer
from PIL import Image

from engine import ConfigError, DataError, InputError, declared_shapes
from engine.historical.declared import declare_shapes
from utils.preprocess.pytorch.classification import preprocess as classify
from utils.preprocess.pytorch.groundingdinot import preprocess
from utils.preprocess.text.captions import CaptionTokenizer, get_tokenlizer

pytest.importorskip("tokenizers")

CAPTION = "cat . hot dog ."


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> CaptionTokenizer:
    return get_tokenlizer(write_tokenizer(tmp_path_factory.mktemp("bert")))


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    declare_shapes(None)
    yield
    declare_shapes(None)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    noise = np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)
    Image.fromarray(noise).resize((100, 60)).save(path)
    return path


def test_a_path_becomes_a_square(image: Path, bert: CaptionTokenizer) -> None:
    images, numbers, kinds, mask = preprocess(str(image), bert, CAPTION, resize_shape=64)
    assert np.array_equal(images, classify(image, "float32", (64, 64), (64, 64)))
    assert [(a.shape, a.dtype) for a in (numbers, kinds, mask)] == [((1, 7), np.int64)] * 3
    assert preprocess(image, bert, CAPTION, half=True)[0].dtype == np.float16
    assert preprocess([image, image], bert, CAPTION)[0].shape == (2, 3, 320, 320)
    assert inspect.signature(preprocess).parameters["resize_shape"].default == 320


def test_normalised_floats_are_only_stretched(image: Path, bert: CaptionTokenizer) -> None:
    given = np.concatenate([classify(image, "float32", (60, 100), (60, 100))] * 2)
    images, numbers, *_ = preprocess(given, bert, CAPTION, resize_shape=64)
    assert (images.shape, numbers.shape) == ((2, 3, 64, 64), (2, 7))
    near = classify(image, "float32", (64, 64), (64, 64))[0]
    assert np.abs(images[1] - near).max() < 0.03  # samples of the file are rounded to 8 bits
    same = preprocess(images, bert, CAPTION, resize_shape=64)[0]
    assert np.array_equal(same, images)


@pytest.mark.torch
def test_tensors_give_tensors(bert: CaptionTokenizer) -> None:
    torch = pytest.importorskip("torch")
    given = torch.zeros(2, 3, 40, 50)
    found = preprocess(given, bert, CAPTION, half=True, resize_shape=32)
    assert all(isinstance(part, torch.Tensor) for part in found)
    assert [(tuple(part.shape), part.dtype) for part in found[:2]] == [
        ((2, 3, 32, 32), torch.float16),
        ((2, 7), torch.int64),
    ]


def test_default_sizes_are_those_of_the_engine(image: Path, bert: CaptionTokenizer) -> None:
    declare_shapes([[1, 3, 96, 96], [4, 10], [4, 10], [4, 10]])
    images, numbers, kinds, mask = preprocess(image, bert, CAPTION)
    assert (images.shape, numbers.shape) == ((1, 3, 96, 96), (1, 10))
    assert mask.tolist() == [[1] * 7 + [0] * 3]
    assert (numbers[0, 7:].any(), kinds.any()) == (False, False)
    assert preprocess(image, bert, CAPTION, resize_shape=320)[0].shape[2:] == (320, 320)
    declare_shapes([[1, 3, None, None], [1, None]])
    images, numbers, *_ = preprocess(image, bert, CAPTION)
    assert (images.shape[2:], numbers.shape) == ((320, 320), (1, 7))
    declare_shapes([[1, 3, 96, 64], [4, 5]])
    with pytest.raises(ConfigError, match="96x64"):
        preprocess(image, bert, CAPTION)
    with pytest.raises(ConfigError, match=r"7 tokens, .*input_size has 5"):
        preprocess(image, bert, CAPTION, resize_shape=64)
    declare_shapes(None)
    assert declared_shapes() == ()


def test_invalid_images(tmp_path: Path, bert: CaptionTokenizer) -> None:
    with pytest.raises(DataError, match=r"none\.png"):
        preprocess(tmp_path / "none.png", bert, CAPTION)
    for given in (np.zeros((3, 8, 8), np.float32), np.zeros((1, 3, 8, 8), np.uint8), np.zeros((0, 3, 8, 8))):
        with pytest.raises(InputError, match="normalised floats N x 3 x H x W"):
            preprocess(given, bert, CAPTION)
    with pytest.raises(ConfigError, match="resize_shape 0"):
        preprocess(np.zeros((1, 3, 8, 8)), bert, CAPTION, resize_shape=0)
