"""Letterbox: position and pixels of an image in the input, and conversion of boxes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.letterbox import (
    FILL,
    FILTERS,
    RESIZES,
    ROUNDINGS,
    Placement,
    between_pixels,
    fit,
    letterbox,
    to_image,
    to_input,
)

lengths = st.integers(1, 400)


@pytest.mark.parametrize(
    ("width", "height", "size", "left", "top", "inner"),
    [
        (640, 480, (640, 640), 0, 80, (640, 480)),
        (100, 50, (64, 64), 0, 16, (64, 32)),
        (30, 60, (64, 64), 16, 0, (32, 64)),
        (10, 10, (20, 41), 10, 0, (20, 20)),
        (1000, 1, (64, 64), 0, 31, (64, 1)),
    ],
)
def test_geometry(width: int, height: int, size: tuple[int, int], left: int, top: int, inner: tuple[int, int]) -> None:
    found = fit(width, height, size)
    assert (found.left, found.top) == (left, top)
    assert (found.across * width, found.down * height) == pytest.approx(inner)


@settings(deadline=None)
@given(lengths, lengths, st.tuples(lengths, lengths), st.data())
def test_roundtrip_of_boxes(width: int, height: int, size: tuple[int, int], data: st.DataObject) -> None:
    geometry = fit(width, height, size)
    corners = [data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))) for _ in range(2)]
    boxes = np.array([[x * width, y * height] for x, y in corners]).reshape(1, 4)
    there = to_input(boxes, geometry)
    assert (there >= -1e-9).all()
    assert (there <= np.array([size[1], size[0]] * 2) + 1e-9).all()
    np.testing.assert_allclose(to_image(there, geometry), boxes, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 60), st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_pixels(width: int, height: int, size: tuple[int, int]) -> None:
    pixels, geometry = letterbox(Image.new("RGB", (width, height), (9, 8, 7)), size)
    assert pixels.shape == (*size, 3)
    assert pixels.dtype == np.uint8
    left, top, right, bottom = np.rint(to_input(np.array([[0, 0, width, height]]), geometry)[0]).astype(int)
    inner = pixels[top:bottom, left:right]
    assert inner.size
    assert (inner == (9, 8, 7)).all()
    assert (pixels == FILL).all(axis=2).sum() == size[0] * size[1] - inner.shape[0] * inner.shape[1]


def test_an_image_of_the_input_size_is_unchanged() -> None:
    source = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    pixels, _ = letterbox(Image.fromarray(source), (10, 8), Placement(fill=0))
    np.testing.assert_array_equal(pixels[2:8], source)
    assert not pixels[[0, 1, 8, 9]].any()


def test_boxes_outside_the_image_are_clipped() -> None:
    geometry = fit(100, 50, (64, 64))
    assert to_image(np.array([[-5, 0, 70, 15.0]]), geometry).tolist() == [[0, 0, 100, 0]]
    assert to_image(np.empty((0, 4)), geometry).shape == (0, 4)


def test_lengths_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"0x5 .*8x9"):
        fit(0, 5, (9, 8))


def test_other_resize_modes() -> None:
    corner = fit(100, 50, (64, 64), Placement("corner"))
    assert (corner.left, corner.top, corner.down) == (0, 0, 0.64)
    stretched = fit(100, 50, (64, 32), Placement("stretch"))
    assert (stretched.across, stretched.down, stretched.left, stretched.top) == (0.32, 1.28, 0, 0)
    small = fit(10, 20, (64, 64), Placement(enlarge=False))
    assert (small.across, small.left, small.top) == (1.0, 27, 22)
    widths = {name: round(30 * fit(30, 64, (31, 31), Placement(rounding=name)).across) for name in ROUNDINGS}
    assert widths == {"round": 15, "floor": 14, "ceil": 15}
    assert round(30 * fit(30, 60, (30, 30), Placement(rounding="ceil")).across) == 15  # no rounding error of floats


@settings(deadline=None, max_examples=40)
@given(
    lengths, lengths, st.tuples(lengths, lengths), st.sampled_from(RESIZES), st.sampled_from(ROUNDINGS), st.booleans()
)
def test_roundtrip_of_boxes_for_every_resize_mode(
    width: int, height: int, size: tuple[int, int], resize: str, rounding: str, enlarge: bool
) -> None:
    geometry = fit(width, height, size, Placement(resize, rounding=rounding, enlarge=enlarge))
    boxes = np.array([[0, 0, width, height], [width / 3, height / 4, width / 2, height]])
    there = to_input(boxes, geometry)
    assert (there >= 0).all()
    assert (there <= np.array([size[1], size[0]] * 2) + 1e-9).all()
    np.testing.assert_allclose(to_image(there, geometry), boxes, atol=1e-6)


def test_between_pixels_is_bilinear_without_antialiasing() -> None:
    torch = pytest.importorskip("torch")
    source = np.random.default_rng(0).integers(0, 256, (37, 53, 3)).astype(np.uint8)
    for size in ((20, 11), (90, 61), (53, 37)):
        wanted = torch.nn.functional.interpolate(
            torch.from_numpy(source.transpose(2, 0, 1)[None].astype(np.float32)), size[::-1], mode="bilinear"
        )[0].numpy()
        found = between_pixels(source, size).transpose(2, 0, 1)
        assert np.abs(found - wanted).max() <= 0.5 + 1e-3


def test_every_filter_and_fill() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 80, 3)).astype(np.uint8))
    made = {name: letterbox(image, (32, 32), Placement(fill=7, interpolation=name))[0] for name in FILTERS}
    assert all((pixels[:8] == 7).all() for pixels in made.values())
    assert len({pixels.tobytes() for pixels in made.values()}) == len(FILTERS)
