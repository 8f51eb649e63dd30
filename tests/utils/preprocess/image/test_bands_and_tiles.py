"""Rectification of bands, and tiles of an image."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from utils.preprocess.image.straighten import straightened
from utils.preprocess.image.tiles import Tiles

CORNERS = np.array([[10, 20], [70, 20], [70, 36], [10, 36]], float)


def gradient() -> Image.Image:
    y, x = np.mgrid[:80, :120]
    return Image.fromarray(np.stack([2 * x, 3 * y, x + y], axis=2).astype(np.uint8))


def test_an_upright_rectangle_is_a_crop() -> None:
    found = straightened(gradient(), CORNERS)
    np.testing.assert_allclose(np.asarray(found), np.asarray(gradient().crop((10, 20, 70, 36))), atol=1)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_first_corner_sets_the_rotation(turns: int) -> None:
    found = straightened(gradient(), np.roll(CORNERS, -turns, axis=0))
    wanted = np.rot90(np.asarray(gradient().crop((10, 20, 70, 36))), turns)
    np.testing.assert_allclose(np.asarray(found), wanted, atol=1)


def test_a_rotated_line_is_straightened() -> None:
    page, angle = gradient(), 20.0
    turned = page.rotate(-angle, Image.Resampling.BICUBIC)  # clockwise, about the middle
    turn, middle = math.radians(angle), np.array([60, 40])
    matrix = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    corners = np.array([[30, 30], [90, 30], [90, 50], [30, 50]], float)
    found = straightened(turned, (corners - middle) @ matrix + middle)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(page.crop((30, 30, 90, 50)), float), atol=4)


def test_a_band_of_several_pieces_and_grey() -> None:
    x = np.linspace(10, 70, 5)
    outline = np.concatenate([np.stack([x, 0 * x + 20], axis=1), np.stack([x, 0 * x + 36], axis=1)[::-1]])
    page = gradient().convert("L")
    found = straightened(page, outline)
    assert (found.mode, found.size) == ("L", (60, 16))
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(page.crop((10, 20, 70, 36)), float), atol=2)


def test_edges_are_repeated_outside_the_image() -> None:
    outside = CORNERS - (20, 30)  # half out at the left and above
    found = np.asarray(straightened(gradient(), outside))
    assert found.shape == (16, 60, 3)
    assert (found[:10, :10].reshape(-1, 3).max(axis=0) <= 2).all()
    far = np.asarray(straightened(gradient(), CORNERS + np.array([500, 500])))
    assert np.ptp(far.reshape(-1, 3), axis=0).max() <= 1
    assert straightened(gradient(), np.zeros((4, 2))).size == (1, 1)


sizes = st.tuples(st.integers(1, 90), st.integers(1, 90))


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(8, 40), st.integers(0, 4))
def test_joined_tiles_are_the_image(size: tuple[int, int], side: int, overlap: int) -> None:
    pixels = np.random.default_rng(0).integers(1, 200, (2, *size)).astype(np.uint8)
    tiles = Tiles.over(size, (side, side), overlap)
    parts = tiles.cut(pixels)
    assert parts.shape == (len(tiles), 2, side, side)
    np.testing.assert_array_equal(tiles.joined(parts[:, 1]), pixels[1])
    for starts, whole in zip((tiles.rows, tiles.columns), size, strict=True):
        assert starts[0] == 0
        assert all(after - before <= side - overlap for before, after in pairwise(starts))
        assert whole <= side or starts[-1] == whole - side


def test_overlaps_use_the_deeper_tile() -> None:
    tiles = Tiles.over((10, 28), (10, 16), 4)
    assert tiles.columns == (0, 12)
    joined = tiles.joined([np.zeros((10, 16)), np.ones((10, 16))])
    assert joined[0].tolist() == [0] * 14 + [1] * 14
