"""Alignment of faces: Umeyama's similarity equals scikit-image's; points lie at those of the template."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from skimage.transform import SimilarityTransform

from engine import DataError
from utils.preprocess.image.alignment import TEMPLATE, chip, similarity


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_similarity_equals_scikit_images(seed: int) -> None:
    chance = np.random.default_rng(seed)
    points, places = chance.uniform(0, 100, (2, 5, 2))
    wanted = SimilarityTransform.from_estimate(points, places)
    assert np.allclose(similarity(points, places), wanted.params[:2], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(-3.1, 3.1), st.floats(0.05, 20), st.floats(-50, 50), st.floats(-50, 50))
def test_roundtrip_of_a_similarity(angle: float, scale: float, right: float, down: float) -> None:
    points = np.array(TEMPLATE) * 112
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    found = similarity(points, points @ turn.T + (right, down))
    assert np.allclose(found, np.concatenate([turn, [[right], [down]]], axis=1), atol=1e-6 * max(1, scale))


def test_reflections_are_excluded() -> None:
    points = np.array(TEMPLATE)
    assert np.linalg.det(similarity(points, points * (-1, 1))[:, :2]) > 0


@pytest.mark.parametrize("points", [np.zeros((5, 2)), np.full((5, 2), np.nan), np.full((5, 2), np.inf)])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_points_without_a_size_are_refused(points: np.ndarray) -> None:
    with pytest.raises(DataError, match="has no size"):
        similarity(points, np.array(TEMPLATE))


def test_aligned_points_give_the_image_itself() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    assert np.array_equal(chip(pixels, np.array(TEMPLATE) * (30, 40), np.array(TEMPLATE), (40, 30)), pixels)


def test_marks_lie_at_the_template() -> None:
    template, size = np.array(TEMPLATE), (100, 100)
    angle, scale = 0.5, 0.35
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = (template * 100 - 50) @ np.linalg.inv(turn).T + (400, 300)
    rows, columns = np.mgrid[:600, :800]
    pixels = np.zeros((600, 800, 3), np.uint8)
    for x, y in points:
        pixels[np.hypot(columns + 0.5 - x, rows + 0.5 - y) < 8] = 255
    made = chip(pixels, points, template, size)[..., 0] > 128
    for x, y in template * 100:
        near = made[int(y) - 8 : int(y) + 9, int(x) - 8 : int(x) + 9]
        middle = np.argwhere(near).mean(axis=0) + np.array([int(y) - 7.5, int(x) - 7.5])
        assert np.allclose(middle, (y, x), atol=0.6)


def test_repeated_border_and_averaged_large_faces() -> None:
    pixels = np.zeros((400, 400, 3), np.uint8)
    pixels[:, 200:] = 240
    beyond = chip(pixels, np.array(TEMPLATE) * 20 + 395, np.array(TEMPLATE), (32, 32))
    assert (beyond == 240).all()
    pixels[::2] = 0
    pixels[1::2] = 200
    whole = chip(pixels, np.array(TEMPLATE) * 400, np.array(TEMPLATE), (40, 40))
    assert (np.abs(whole.astype(int) - 100) <= 1).all()
