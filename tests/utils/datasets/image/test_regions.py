"""Run lengths and polygons compared bit for bit with pycocotools, and invalid ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pycocotools import mask as coco

from engine import DataError
from utils.datasets.image.regions import of_polygon, of_runs

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in pycocotools

SIDES = st.integers(1, 40)
COORDINATES = st.one_of(
    st.integers(-60, 120).map(lambda n: n / 2), st.floats(-30, 60, allow_nan=False).map(lambda x: round(x, 3))
)
POLYGONS = st.lists(st.tuples(COORDINATES, COORDINATES), min_size=3, max_size=9).map(
    lambda corners: [float(x) for corner in corners for x in corner]
)


@settings(deadline=None, max_examples=100)
@given(POLYGONS, SIDES, SIDES)
def test_polygons_are_those_of_pycocotools(points: list[float], height: int, width: int) -> None:
    (code,) = coco.frPyObjects([points], height, width)
    wanted = coco.decode(code).astype(bool)
    np.testing.assert_array_equal(of_polygon(points, height, width), wanted)
    np.testing.assert_array_equal(of_runs(code["counts"], height, width), wanted)


@settings(deadline=None, max_examples=40)
@given(SIDES, SIDES, st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_run_lengths_are_those_of_pycocotools(height: int, width: int, seed: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    packed = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]
    np.testing.assert_array_equal(of_runs(packed, height, width), mask)
    np.testing.assert_array_equal(of_runs(packed.decode(), height, width), mask)
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat])))
    runs = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    np.testing.assert_array_equal(of_runs(runs, height, width), mask)
    again = coco.frPyObjects({"counts": runs, "size": [height, width]}, height, width)
    np.testing.assert_array_equal(coco.decode(again).astype(bool), mask)


def test_large_regions() -> None:
    points = [3.5, 2.25, 1900.0, 40.75, 1999.99, 999.0, 200.5, 700.125]
    (code,) = coco.frPyObjects([points], 1000, 2000)
    np.testing.assert_array_equal(of_polygon(points, 1000, 2000), coco.decode(code).astype(bool))
    np.testing.assert_array_equal(of_runs(code["counts"], 1000, 2000), coco.decode(code).astype(bool))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([3, 2], "covers 5 pixels.*3x4 = 12"),
        ([], "covers 0 pixels"),
        ([14, -2], "not an integer"),
        ([6, 6.0], "not an integer"),
        ([True, 11], "not an integer"),
        ("0 2", "invalid character ' '"),
        ("é", "invalid character 'é'"),
        ("P" * 30, "invalid character"),
        ("Y", "truncated"),
        ("3", "covers 3 pixels"),
    ],
)
def test_invalid_codes(counts: list[int] | str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        of_runs(counts, 4, 3)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([1, 1, 2, 2], "4 numbers"),
        ([1, 1, 2, 2, 3, 3, 4], "7 numbers"),
        ([], "0 numbers"),
        ([1, 1, 2, 2, float("nan"), 3], "has nan, which is not a coordinate"),
        ([1, 1, 2, 2, "3", 3], "has '3', which is not a coordinate"),
        ([1, 1, 2, 2, 1e9, 3], "has 1000000000.0"),
        ([-1e6, 0, 1e6, 0] * 100, "outline of 400000000 pixels"),
    ],
)
def test_invalid_polygons(points: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        of_polygon(points, 5, 5)


def test_a_polygon_outside_the_image_is_empty() -> None:
    assert not of_polygon([50, 50, 60, 50, 60, 60], 20, 30).any()
    assert of_polygon([-50, -50, 80, -50, 80, 80, -50, 80], 20, 30).all()
