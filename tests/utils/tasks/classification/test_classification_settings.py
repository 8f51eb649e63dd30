"""Settings of classifiers: channel order, range, resize and filter by flag or metadata, compared with Pillow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import Array, ConfigError, ModelError, TensorSpec
from utils.pipeline.flags.options import options
from utils.preprocess.image.modes import MEAN, STD
from utils.tasks import Model
from utils.tasks.classification.settings import EXPORT_SETTINGS, NORMALISATIONS
from utils.tasks.classification.task import Classification

SIDE = 32
CHANNELS_FIRST, CHANNELS_LAST, GREY = (None, 3, SIDE, SIDE), (None, SIDE, SIDE, 3), (None, 1, SIDE, SIDE)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Write an image of 60 x 45 pixels with different values in each channel."""
    levels = np.random.default_rng(0).integers(0, 256, (9, 12, 3)).astype(np.uint8)
    Image.fromarray(levels).resize((60, 45), Image.Resampling.BICUBIC).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def task(shape: tuple[Any, ...], metadata: dict[str, str] | None = None, **flags: Any) -> Classification:
    """Return the task with flags, bound to a model of one image input."""
    opt = options(None, Classification, "valid", [], ckpt="m.onnx", data_path="a", input_size=[SIDE], **flags)
    inputs = (TensorSpec("x", np.dtype(np.float32), shape),)
    found: Classification = Classification(opt).bind(Model(Path("m.onnx"), inputs, metadata=metadata or {}))
    return found


def prepared(shape: tuple[Any, ...], image: Path, metadata: dict[str, str] | None = None, **flags: Any) -> Array:
    (array,) = task(shape, metadata, **flags).prepare([image]).arrays
    return np.asarray(array)


def levels(image: Path, short: int, way: Image.Resampling) -> Array:
    """Return the central crop as height x width x 3 in 0..1, with Pillow; ``short``: the resized short side."""
    given = Image.open(image)
    sides = (SIDE, SIDE) if short == 0 else (int(short * given.width / given.height), short)
    found = given.resize(sides, way)
    left, top = round((found.width - SIDE) / 2), round((found.height - SIDE) / 2)
    return np.asarray(found.crop((left, top, left + SIDE, top + SIDE)), np.float64) / 255


@pytest.mark.parametrize(
    ("flags", "short", "way"),
    [
        ({}, 37, Image.Resampling.BILINEAR),  # 256 / 224 of the side
        ({"resize": "1"}, SIDE, Image.Resampling.BILINEAR),
        ({"resize": "0.8"}, 40, Image.Resampling.BILINEAR),
        ({"resize": "squash"}, 0, Image.Resampling.BILINEAR),
        ({"interpolation": "bicubic"}, 37, Image.Resampling.BICUBIC),
    ],
)
def test_resize_and_filter(flags: dict[str, Any], short: int, way: Image.Resampling, image: Path) -> None:
    wanted = (levels(image, short, way) - MEAN) / STD
    found = prepared(CHANNELS_FIRST, image, **flags)[0].transpose(1, 2, 0)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_ranges_and_channel_order(name: str, image: Path) -> None:
    mean, std = NORMALISATIONS[name]
    wanted = ((levels(image, 37, Image.Resampling.BILINEAR) - mean) / std)[..., ::-1]
    flags: dict[str, Any] = {"pixel_values": name, "channel_order": "BGR"}
    atol = 1e-5 * float(np.abs(wanted).max())
    np.testing.assert_allclose(prepared(CHANNELS_LAST, image, **flags)[0], wanted, atol=atol)
    np.testing.assert_allclose(prepared(CHANNELS_FIRST, image, **flags)[0].transpose(1, 2, 0), wanted, atol=atol)


def test_metadata_and_flags(image: Path) -> None:
    notes = {"classification": json.dumps({"channel_order": "BGR", "pixel_values": "0..1", "resize": "squash"})}
    stored = prepared(CHANNELS_FIRST, image, notes)
    flags: dict[str, Any] = {"channel_order": "BGR", "pixel_values": "0..1", "resize": "squash"}
    assert np.array_equal(stored, prepared(CHANNELS_FIRST, image, **flags))
    turned = prepared(CHANNELS_FIRST, image, notes, channel_order="RGB")
    assert np.array_equal(turned, stored[:, ::-1])
    current = {
        one.key: one.now(task(CHANNELS_FIRST, notes).model, task(CHANNELS_FIRST).options) for one in EXPORT_SETTINGS
    }
    assert current == {**flags, "interpolation": "bilinear"}


def test_grey_input_takes_the_mean_of_a_named_range(image: Path) -> None:
    found = prepared(GREY, image, pixel_values="-1..1", channel_order="BGR")
    assert found.shape == (1, 1, SIDE, SIDE)
    grey = Image.open(image).convert("L").resize((49, 37), Image.Resampling.BILINEAR).crop((8, 2, 40, 34))
    np.testing.assert_allclose(found[0, 0], np.asarray(grey) / 255 * 2 - 1, atol=1e-5)


def test_wrong_values(image: Path) -> None:
    for way in ("0", "2", "nan", "crop"):
        with pytest.raises(ConfigError, match=rf"--resize '{way}' must be squash, or a number"):
            task(CHANNELS_FIRST, resize=way).check()
    with pytest.raises(ModelError, match=r"classification.*channel_order 'GBR' must be one of RGB, BGR"):
        prepared(CHANNELS_FIRST, image, {"classification": '{"channel_order": "GBR"}'})
