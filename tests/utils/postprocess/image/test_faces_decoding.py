"""Decoding of CenterFace's maps, compared with a loop over the cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import InputError
from utils.postprocess.image.faces import HEADS, Faces, decode_faces
from utils.preprocess.image.letterbox import Geometry, fit

CELLS = (6, 5)
WHOLE = Geometry(20, 24, 1.0, 1.0, 0, 0)


def maps(samples: int = 1, seed: int = 0) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    found = [chance.normal(0, 0.5, (samples, channels, *CELLS)).astype(np.float32) for channels in HEADS.values()]
    found[0] = chance.random((samples, 1, *CELLS)).astype(np.float32)
    return found


def by_a_loop(outputs: list[np.ndarray], geometry: Geometry, threshold: float, iou: float) -> list[tuple[float, ...]]:
    """Read one image's maps cell by cell."""
    heat, scale, offset, points = (one[0].astype(float) for one in outputs)
    cells = [(heat[0, r, c], r, c) for r in range(CELLS[0]) for c in range(CELLS[1]) if heat[0, r, c] >= threshold]
    kept: list[tuple[float, ...]] = []
    for score, r, c in sorted(cells, key=lambda one: -one[0]):
        high, wide = 4 * math.exp(scale[0, r, c]), 4 * math.exp(scale[1, r, c])
        left = (c + offset[1, r, c] + 0.5) * 4 - wide / 2
        top = (r + offset[0, r, c] + 0.5) * 4 - high / 2
        places = []
        for point in range(5):
            places += [left + points[2 * point + 1, r, c] * wide, top + points[2 * point, r, c] * high]
        box = [left, top, left + wide, top + high]
        box = [
            (edge - start) / step for edge, start, step in zip(box, _starts(geometry), _steps(geometry), strict=True)
        ]
        box = [min(max(edge, 0), most) for edge, most in zip(box, (geometry.width, geometry.height) * 2, strict=True)]
        places = [
            (place - start) / step
            for place, start, step in zip(places, _starts(geometry) * 3, _steps(geometry) * 3, strict=False)
        ]
        if all(_share(box, one[1:5]) <= iou for one in kept):
            kept.append((score, *box, *places))
    return kept


def _starts(geometry: Geometry) -> tuple[float, ...]:
    return (geometry.left, geometry.top) * 2


def _steps(geometry: Geometry) -> tuple[float, ...]:
    return (geometry.across, geometry.down) * 2


def _share(one: list[float], other: tuple[float, ...]) -> float:
    sides = [max(0.0, min(one[i + 2], other[i + 2]) - max(one[i], other[i])) for i in (0, 1)]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    common = sides[0] * sides[1]
    union = sum(areas) - common
    return common / union if union > 0 else 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 999),
    st.floats(0.1, 0.95),
    st.sampled_from([0.0, 0.3, 0.7]),
    st.tuples(st.integers(1, 90), st.integers(1, 90)),
)
def test_faces_equal_a_loop_over_the_cells(seed: int, threshold: float, iou: float, size: tuple[int, int]) -> None:
    outputs, geometry = maps(seed=seed), fit(*size, (24, 20))
    (found,) = decode_faces(outputs, [geometry], threshold, iou)
    wanted = np.array(by_a_loop(outputs, geometry, threshold, iou)).reshape(-1, 15)
    assert found.landmarks.shape == (len(found), 5, 2)
    assert {array.dtype for array in (found.boxes, found.scores, found.landmarks)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found.scores, wanted[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found.boxes, wanted[:, 1:5], atol=1e-3, rtol=1e-5)
    np.testing.assert_allclose(found.landmarks.reshape(-1, 10), wanted[:, 5:], atol=1e-3, rtol=1e-4)


def test_images_of_a_batch_are_independent() -> None:
    outputs = maps(3)
    geometries = [WHOLE, fit(10, 12, (24, 20)), fit(50, 12, (24, 20))]
    together = decode_faces(outputs, geometries, 0.4, 0.3)
    for place, geometry in enumerate(geometries):
        (alone,) = decode_faces([one[place : place + 1] for one in outputs], [geometry], 0.4, 0.3)
        assert all(np.array_equal(*pair) for pair in zip(_columns(alone), _columns(together[place]), strict=True))
    assert decode_faces([one[:0] for one in outputs], [], 0.4, 0.3) == []


def _columns(faces: Faces) -> list[np.ndarray]:
    return [faces.boxes, faces.scores, faces.landmarks, faces.classes]


def test_order_and_limit_of_faces() -> None:
    (found,) = decode_faces(maps(), [WHOLE], 0.0, 1.0)
    assert len(found) == 30
    assert (np.diff(found.scores) <= 0).all()
    (two,) = decode_faces(maps(), [WHOLE], 0.0, 1.0, most=2)
    assert np.array_equal(two.scores, found.scores[:2])
    (none,) = decode_faces(maps(), [WHOLE], 1.1, 0.3)
    assert (len(none), none.boxes.shape, none.landmarks.shape, none.classes.shape) == (0, (0, 4), (0, 5, 2), (0,))


@pytest.mark.parametrize("head", range(4))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e4])
def test_nan_is_not_a_face(head: int, value: float) -> None:
    outputs = maps()
    (before,) = decode_faces(outputs, [WHOLE], 0.5, 1.0)
    outputs[head][0, :, 2, 2] = value
    (after,) = decode_faces(outputs, [WHOLE], 0.5, 1.0)
    assert all(np.isfinite(column).all() for column in _columns(after)[:1] + _columns(after)[2:])
    assert len(after) >= len(before) - 1


def test_float16_maps() -> None:
    outputs = maps()
    (whole,) = decode_faces(outputs, [WHOLE], 0.3, 1.0)
    (half,) = decode_faces([one.astype(np.float16) for one in outputs], [WHOLE], 0.3, 1.0)
    np.testing.assert_allclose(half.boxes, whole.boxes, atol=0.1)


@pytest.mark.parametrize("wrong", [[], maps()[:3], maps()[::-1], [one[0] for one in maps()], maps(2)])
def test_invalid_outputs(wrong: list[np.ndarray]) -> None:
    with pytest.raises(InputError, match=r"1 samples; .*heatmap.*scale"):
        decode_faces(wrong, [WHOLE], 0.3, 0.3)
