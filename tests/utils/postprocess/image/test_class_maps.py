"""Classes at any size, compared with PyTorch's resizing."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from utils.postprocess.image.class_maps import (
    NO_CLASS,
    View,
    best_classes,
    foreground,
    nearest_classes,
    upsampled,
)

SIDES = st.integers(1, 48)


def whole(height: int, width: int) -> View:
    return View((height, width), (0, 0), (64, 64), (64, 64))


def interpolated(scores: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    found = torch.nn.functional.interpolate(torch.from_numpy(scores)[None], size, mode="bilinear", align_corners=False)
    return found[0].numpy()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), SIDES, SIDES, SIDES, SIDES, st.integers(0, 2**32 - 1))
def test_scores_are_resized_as_pytorch_does(
    classes: int, rows: int, columns: int, height: int, width: int, seed: int
) -> None:
    scores = np.random.default_rng(seed).uniform(-1, 1, (classes, rows, columns)).astype(np.float32)
    found = upsampled(scores, whole(height, width))
    np.testing.assert_allclose(found, interpolated(scores, (height, width)), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(best_classes(scores, whole(height, width)), found.argmax(axis=0))
    least = np.float32(np.log(0.3 / 0.7))
    np.testing.assert_array_equal(foreground(scores[0], whole(height, width), 0.3), found[0] >= least)


@settings(deadline=None, max_examples=60)
@given(SIDES, SIDES, SIDES, SIDES)
def test_class_numbers_are_resized_as_pillow_does(rows: int, columns: int, height: int, width: int) -> None:
    classes = np.random.default_rng(rows).integers(0, 300, (rows, columns)).astype(np.int32)
    found = nearest_classes(classes, whole(height, width))
    assert found.dtype == np.int16
    small = (classes % 256).astype(np.uint8)
    pillow = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(nearest_classes(small, whole(height, width)), pillow)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_roundtrip_of_a_letterbox(data: st.DataObject) -> None:
    """If the image covers whole cells, the scores equal those of a crop that is resized."""
    step = data.draw(st.sampled_from([1, 2, 4, 8]))
    cells = [data.draw(st.integers(1, 20)) for _ in range(2)]
    starts = [data.draw(st.integers(0, count - 1)) for count in cells]
    extents = [data.draw(st.integers(1, count - start)) for count, start in zip(cells, starts, strict=True)]
    size = data.draw(SIDES), data.draw(SIDES)
    scores = np.random.default_rng(step).uniform(-1, 1, (3, *cells)).astype(np.float32)
    view = View(
        size,
        (starts[0] * step, starts[1] * step),
        (extents[0] * step, extents[1] * step),
        (cells[0] * step, cells[1] * step),
    )
    cut = np.ascontiguousarray(scores[:, starts[0] :, starts[1] :][:, : extents[0], : extents[1]])
    np.testing.assert_allclose(upsampled(scores, view), interpolated(cut, size), rtol=0, atol=2e-5)


def test_ties_and_nan() -> None:
    scores = np.zeros((3, 2, 2), np.float16)
    assert best_classes(scores, whole(2, 2)).tolist() == [[0, 0], [0, 0]]
    scores[1:, 0, 0] = 1
    scores[2, 1, 1] = np.nan
    found = best_classes(scores, whole(2, 2))
    assert found.tolist() == [[1, 0], [0, NO_CLASS]]
    assert found.dtype == np.int16
    assert foreground(scores[2], whole(2, 2), 0.5).tolist() == [[1, 1], [1, NO_CLASS]]
    lowest = np.full((2, 1, 1), -np.inf, np.float32)
    assert best_classes(lowest, whole(1, 1)).tolist() == [[0]]


def test_memory_is_independent_of_the_classes() -> None:
    """150 classes of 640 x 640 pixels would take 246 MB together."""
    scores = np.random.default_rng(0).normal(size=(150, 16, 16)).astype(np.float32)
    tracemalloc.start()
    try:
        found = best_classes(scores, whole(640, 640))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.shape == (640, 640)
    assert peak < 25e6
