"""Text lines of a map: components, rectangles and bands, each compared with another implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, ImageDraw
from scipy import ndimage

from utils.metrics.text.polygons import Polygon
from utils.postprocess.text.components import components
from utils.postprocess.text.lines import Settings, find_lines
from utils.postprocess.text.midlines import band, length_of, midline
from utils.postprocess.text.rectangles import convex_hull, smallest_rectangle


def labelled(mask: np.ndarray) -> np.ndarray:
    runs, found = components(mask), np.zeros(mask.shape, np.int64)
    for number in range(len(runs)):
        for row, start, end in zip(*runs.of(number), strict=True):
            found[row, start:end] = number + 1
    return found


@settings(max_examples=60, deadline=None)
@given(arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=18)))
def test_components_equal_scipys(mask: np.ndarray) -> None:
    wanted, _ = ndimage.label(mask, np.ones((3, 3)))
    np.testing.assert_array_equal(labelled(mask), wanted)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.41, 0.6])
def test_components_of_a_large_map(share: float) -> None:
    mask = np.random.default_rng(0).random((150, 210)) < share
    wanted, _ = ndimage.label(mask, np.ones((3, 3)))
    np.testing.assert_array_equal(labelled(mask), wanted)


points = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(points)
def test_no_rotated_rectangle_is_smaller(given: list[tuple[int, int]]) -> None:
    cloud = np.array(given, np.float64)
    box = smallest_rectangle(cloud)
    angles = np.linspace(0, math.pi / 2, 2001)
    along = cloud @ np.stack([np.cos(angles), np.sin(angles)])
    across = cloud @ np.stack([-np.sin(angles), np.cos(angles)])
    area = math.prod(box.sides)
    assert area <= (np.ptp(along, axis=0) * np.ptp(across, axis=0)).min() + 1e-6
    assert box.sides[0] >= box.sides[1] >= 0
    offset = cloud - box.centre  # it contains all points
    assert (np.abs(offset @ box.axis) <= box.sides[0] / 2 + 1e-6).all()
    assert (np.abs(offset @ np.array([-box.axis[1], box.axis[0]])) <= box.sides[1] / 2 + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(points)
def test_a_hull_is_convex_and_contains_all_points(given: list[tuple[int, int]]) -> None:
    hull = convex_hull(np.array(given, np.float64))
    if len(hull) < 3:
        return
    for a, b in zip(hull, np.roll(hull, -1, axis=0), strict=True):
        sides = [(b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]) for x, y in given]
        assert min(sides) >= -1e-9


def drawn(outline: np.ndarray, size: tuple[int, int] = (400, 300)) -> np.ndarray:
    image = Image.new("L", size, 0)
    ImageDraw.Draw(image).polygon([tuple(point) for point in outline.tolist()], fill=255)
    return np.asarray(image, np.float32) / 255


def rectangle(
    angle: float, sides: tuple[float, float] = (200, 24), centre: tuple[float, float] = (200, 150)
) -> np.ndarray:
    turn = math.radians(angle)
    axis = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * np.array(sides) / 2
    return corners @ axis + centre


@pytest.mark.parametrize("angle", [0, 7, 30, -30, 50, 90])
def test_a_straight_line_is_expanded(angle: float) -> None:
    (found,) = find_lines(drawn(rectangle(angle)))
    distance = 200 * 24 * 1.5 / (2 * 224)
    wanted = Polygon(rectangle(angle, (200 + 2 * distance, 24 + 2 * distance)))
    assert Polygon(found.outline).overlap(wanted) > 0.88
    assert found.score > 0.9
    run = found.outline[1] - found.outline[0]
    assert np.hypot(*run) > 200  # along the text
    assert run[0] > 0 or angle == 90
    if angle == 90:  # read downwards: the line begins above, at the right
        assert run[1] > 0
        assert found.outline[0][0] > 200


def test_a_slightly_high_line_is_not_rotated() -> None:
    (found,) = find_lines(drawn(rectangle(0, (30, 36))))
    assert found.outline[1][0] > found.outline[0][0]
    assert found.outline[1][1] == pytest.approx(found.outline[0][1])


def arc(radius: float, half: float, start: float, end: float) -> np.ndarray:
    turns = np.radians(np.linspace(start, end, 40))
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return np.concatenate([circle * (radius + half), (circle * (radius - half))[::-1]]) + np.array([200, 220])


@pytest.mark.parametrize(("start", "end"), [(-150, -30), (-170, -80), (-180, 20)])
def test_bent_lines(start: float, end: float) -> None:
    probabilities = drawn(arc(140, 12, start, end))
    (found,) = find_lines(probabilities, Settings(unclip=1e-3))
    assert len(found.outline) > 4
    assert Polygon(found.outline).overlap(Polygon(arc(140, 12, start, end))) > 0.8
    (straight,) = find_lines(probabilities, Settings(bent=False, box_threshold=0.05))
    assert len(straight.outline) == 4


def test_length_of_an_arcs_midline() -> None:
    runs = components(drawn(arc(140, 12, -150, -30)) > 0)
    points = midline(*runs.of(0))
    assert length_of(points) == pytest.approx(140 * math.radians(120), rel=0.05)
    assert points[0][0] < points[-1][0]
    away = np.hypot(*(points - (200, 220)).T)
    assert np.abs(away - 140).max() < 6
    outline = band(points, 10, 0)
    assert len(outline) == 2 * len(points)
    assert outline[0][1] < outline[-1][1]  # the upper side first


def test_small_faint_and_missing_lines() -> None:
    weak = drawn(rectangle(0)) * 0.45
    assert find_lines(weak) == []
    assert len(find_lines(weak, Settings(box_threshold=0.4))) == 1
    assert find_lines(np.zeros((64, 64), np.float32)) == []
    assert find_lines(np.full((64, 64), np.nan, np.float32)) == []
    assert find_lines(drawn(rectangle(0, (8, 1)))) == []
    noise = np.zeros((60, 60), np.float32)
    noise[::6, ::6] = 1
    assert find_lines(noise) == []
    many = np.zeros((60, 200), np.float32)
    for column in range(10):
        many[10:20, column * 20 : column * 20 + 10 + column % 3] = 1
    assert len(find_lines(many, Settings(candidates=3))) == 3
