"""Letterbox: where a picture lies in the input, its pixels, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.letterbox import FILL, Laying, fit, letterbox, to_input, to_picture

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
def test_where_it_lies(
    width: int, height: int, size: tuple[int, int], left: int, top: int, inner: tuple[int, int]
) -> None:
    found = fit(width, height, size)
    assert (found.left, found.top) == (left, top)
    assert (found.across * width, found.down * height) == pytest.approx(inner)


@settings(deadline=None)
@given(lengths, lengths, st.tuples(lengths, lengths), st.data())
def test_boxes_come_back(width: int, height: int, size: tuple[int, int], data: st.DataObject) -> None:
    geometry = fit(width, height, size)
    corners = [data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))) for _ in range(2)]
    boxes = np.array([[x * width, y * height] for x, y in corners]).reshape(1, 4)
    there = to_input(boxes, geometry)
    assert (there >= -1e-9).all()
    assert (there <= np.array([size[1], size[0]] * 2) + 1e-9).all()
    np.testing.assert_allclose(to_picture(there, geometry), boxes, atol=1e-6)


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


def test_a_picture_of_the_right_size_keeps_every_pixel() -> None:
    source = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    pixels, _ = letterbox(Image.fromarray(source), (10, 8), Laying(fill=0))
    np.testing.assert_array_equal(pixels[2:8], source)
    assert not pixels[[0, 1, 8, 9]].any()


def test_boxes_beside_the_picture_are_clipped() -> None:
    geometry = fit(100, 50, (64, 64))
    assert to_picture(np.array([[-5, 0, 70, 15.0]]), geometry).tolist() == [[0, 0, 100, 0]]
    assert to_picture(np.empty((0, 4)), geometry).shape == (0, 4)


def test_lengths_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="a 0x5 picture cannot be fitted into 8x9"):
        fit(0, 5, (9, 8))
