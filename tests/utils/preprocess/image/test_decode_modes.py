"""Differences between the ways of decoding, on photographs."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.images import Decoded, decode_file, open_image
from utils.preprocess.image.modes import DECODES, MEAN, STD
from utils.preprocess.image.resizing import part_of, resize_part
from utils.preprocess.paddle.classification import preprocess as preprocess_paddle
from utils.preprocess.pytorch.classification import preprocess

SKIMAGE = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "immunohistochemistry", "retina", "rocket")
PHOTOS = (*SKIMAGE, "china", "flower")


@functools.cache
def photograph(name: str) -> Image.Image:
    if name in SKIMAGE:
        return Image.fromarray(getattr(pytest.importorskip("skimage.data"), name)())
    return Image.fromarray(pytest.importorskip("sklearn.datasets").load_sample_image(f"{name}.jpg"))


def jpeg(name: str, size: tuple[int, int], folder: Path, **options: object) -> Path:
    """Write the middle of a photograph as a JPEG of quality 90 and of any size."""
    photo = photograph(name)
    width = min(photo.width, photo.height * size[0] / size[1])
    height = width * size[1] / size[0]
    left, top = max(0, (photo.width - width) / 2), max(0, (photo.height - height) / 2)
    width, height = min(width, photo.width - left), min(height, photo.height - top)
    path = folder / f"{name}{size[0]}.jpg"
    photo.resize(size, Image.Resampling.BICUBIC, (left, top, left + width, top + height)).save(
        path, quality=90, **options
    )
    return path


def levels(path: Path, decode: str, resize: int = 256, crop: int = 224) -> np.ndarray:
    """Return the preprocessed samples as 0..255 again."""
    normalised = preprocess(path, "float32", resize, crop, decode=decode)[0]
    return (normalised * np.reshape(STD, (3, 1, 1)) + np.reshape(MEAN, (3, 1, 1))) * 255


def reference(image: Image.Image, size: tuple[int, int], box: tuple[int, int, int, int]) -> np.ndarray:
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR).crop(box))


@pytest.mark.parametrize("name", PHOTOS)
def test_exact_equals_resize_then_crop(name: str, tmp_path: Path) -> None:
    path = jpeg(name, (500, 375), tmp_path)
    expected = reference(open_image(path), (341, 256), (58, 16, 282, 240)).transpose(2, 0, 1)
    np.testing.assert_array_equal(levels(path, "exact").round(3), expected)


@pytest.mark.parametrize(
    ("size", "resize", "crop", "share"),
    [
        ((500, 375), 256, 224, 0.005),  # measured: 0.001
        ((375, 500), 256, 224, 0.2),  # 0.001 measured; a Pillow that chooses the order of the axes may choose another
        ((512, 512), 256, 224, 0.005),  # 0
        ((1280, 960), 256, 224, 0.005),  # 0.0001
        ((333, 500), 342, 299, 0.2),  # 0.1: here Pillow 13 does take the part's axes in the other order
    ],
)
def test_fused_differs_by_a_level_or_two(
    size: tuple[int, int], resize: int, crop: int, share: float, tmp_path: Path
) -> None:
    differing = []
    for name in PHOTOS:
        path = jpeg(name, size, tmp_path)
        difference = np.abs(levels(path, "fused", resize, crop) - levels(path, "exact", resize, crop)).round(3)
        assert difference.max() <= (2 if share > 0.1 else 1)
        differing.append((difference > 0).mean())
    assert np.mean(differing) < share


@pytest.mark.parametrize("size", [(2048, 1536), (1536, 2048)])
def test_reduced_differs_by_few_levels(size: tuple[int, int], tmp_path: Path) -> None:
    largest, mean = [], []
    for name in PHOTOS:
        path = jpeg(name, size, tmp_path)
        difference = np.abs(levels(path, "reduced") - levels(path, "exact"))
        largest.append(difference.max())
        mean.append(difference.mean())
    assert 1.5 < max(largest) < 10  # measured: 7
    assert np.mean(mean) < 0.25  # measured: 0.19


def test_reduced_equals_fused_for_small_images_and_png(tmp_path: Path) -> None:
    small = jpeg("coffee", (640, 480), tmp_path)
    png = tmp_path / "large.png"
    photograph("coffee").resize((1200, 1100)).save(png)
    for path in (small, png):
        np.testing.assert_array_equal(levels(path, "reduced"), levels(path, "fused"))


@pytest.mark.parametrize("size", [(2050, 1540), (1027, 1030)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_reduced_is_upright(size: tuple[int, int], orientation: int, tmp_path: Path) -> None:
    """Sizes that are not multiples of the scale: the part of the last pixel beyond the image is left out."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = jpeg("chelsea", size, tmp_path, exif=exif)
    assert np.abs(levels(path, "reduced") - levels(path, "exact")).mean() < 0.6
    image, (left, top, right, bottom) = decode_file(path, at_least=256)
    assert min(image.size) < min(size)
    upright = open_image(path)
    assert (right - left) / (bottom - top) == upright.width / upright.height
    assert 0 <= left < 1 > image.width - right >= 0
    assert 0 <= top < 1 > image.height - bottom >= 0


@given(
    size=st.tuples(st.integers(1, 260), st.integers(1, 260)),
    at_least=st.integers(1, 64),
)
@settings(max_examples=60, deadline=None)
def test_minimum_side_of_reduced_images(size: tuple[int, int], at_least: int) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        Image.new("L", size).save(file, "jpeg")
        file.flush()
        image = decode_file(file.name, at_least).image
    assert min(image.size) >= min(*size, at_least)


def test_pil_images_are_not_reduced(tmp_path: Path) -> None:
    path = jpeg("retina", (1200, 1100), tmp_path)
    with Image.open(path) as image:
        given = preprocess(image, "float32", decode="reduced")
        assert image.size == (1200, 1100)
    np.testing.assert_array_equal(given, preprocess(path, "float32", decode="fused"))


@pytest.mark.parametrize("decode", DECODES)
def test_grey_is_three_equal_channels_at_less_cost(decode: str, tmp_path: Path) -> None:
    grey, colour = tmp_path / "grey.png", tmp_path / "colour.png"
    image = photograph("coffee").convert("L")
    image.save(grey)
    image.convert("RGB").save(colour)
    assert decode_file(grey).image.mode == "L"
    for dtype in ("float32", "float16"):
        np.testing.assert_array_equal(preprocess(grey, dtype, decode=decode), preprocess(colour, dtype, decode=decode))


@pytest.mark.parametrize("decode", ["turbo", "", None, "Exact"])
def test_unknown_way_to_decode(decode: str) -> None:
    for face in (preprocess, preprocess_paddle):
        with pytest.raises(ConfigError, match=r"unknown decode .*exact, fused, reduced"):
            face(Image.new("RGB", (4, 4)), decode=decode)


# ------------------------------------------------------------------------------------------------ resizing, by itself


@settings(max_examples=200, deadline=None)
@given(
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    resized=st.tuples(*[st.one_of(st.sampled_from([1, 2, 8, 32, 48, 64, 96, 128, 256]), st.integers(1, 300))] * 2),
    data=st.data(),
    mode=st.sampled_from(["RGB", "L"]),
)
def test_any_crop_of_any_resize(
    size: tuple[int, int], resized: tuple[int, int], data: st.DataObject, mode: str
) -> None:
    """``exact`` is exact for every crop; ``fused`` stays within two levels even on noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    crop = data.draw(st.tuples(*(st.integers(1, length) for length in resized)))
    start = [data.draw(st.integers(0, length - part)) for length, part in zip(resized, crop, strict=True)]
    expected = reference(image, resized, (*start, start[0] + crop[0], start[1] + crop[1]))

    for fused in (False, True):
        starts = iter(start)  # the horizontal axis comes first

        def crop_start(length: int, part: int, starts: Iterator[int] = starts) -> int:
            return next(starts)

        decoded = Decoded(image, (0, 0, *size))
        part = part_of(decoded, resized[::-1], crop[::-1], crop_start, fused=fused, name="noise")
        ours = resize_part(image, part)
        difference = np.abs(np.asarray(ours).astype(int) - expected)
        assert difference.max() <= (2 if fused else 0)
