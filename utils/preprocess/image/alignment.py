"""Alignment of faces: a similarity transformation of five points onto a template."""

from __future__ import annotations

import numpy as np
from PIL import Image

from engine import Array, DataError

POINTS = 5
"""Points of a face: the eye at the left of the image, the right one, nose, left and right corner of the mouth."""

TEMPLATE = (
    *((0.341916, 0.461574), (0.656534, 0.459834), (0.500225, 0.640505)),
    *((0.370976, 0.824692), (0.631517, 0.823250)),
)
"""Points in an aligned face, relative to its width and height, as used to train ArcFace and similar models (Deng et al.
2019; 38.2946, 51.6963 and so on in 112 x 112 pixels)."""

SHARP = 2
"""Maximum pixels of the image per pixel of the aligned face; larger images are first averaged down."""


def similarity(points: Array, places: Array) -> Array:
    """Return the rotation, scale and shift from points to places with the least squared error (Umeyama 1991).

    For N x 2 points and places (x and y), it is 2 x 3 float64: ``places ~ points @ m[:, :2].T + m[:, 2]``. Reflections
    are excluded. Raises DataError if the points are all the same, or not finite.
    """
    source, target = np.asarray(points, np.float64), np.asarray(places, np.float64)
    middle, goal = source.mean(axis=0), target.mean(axis=0)
    away, wanted = source - middle, target - goal
    spread = float((away**2).sum())
    if not np.isfinite(spread) or spread < 1e-12:
        raise DataError(f"the {len(source)} points of a face coincide or are not finite, so it has no size")
    left, sizes, right = np.linalg.svd(wanted.T @ away)
    signs = np.array([1.0, 1.0 if np.linalg.det(left @ right) > 0 else -1.0])
    turn = left @ np.diag(signs) @ right
    linear = turn * float((sizes * signs).sum()) / spread
    return np.concatenate([linear, (goal - linear @ middle)[:, None]], axis=1)


def chip(pixels: Array, points: Array, template: Array, size: tuple[int, int]) -> Array:
    """Return a face, cut out and aligned to put its points at those of a template: height x width x 3 uint8.

    Points are N x 2, x and y in pixels of the image (H x W x 3 uint8), the template's relative to the result's width
    and height. Pixels lie at half-integer coordinates; beyond the image, its border pixels are repeated. Samples are
    bilinear; a face more than twice as large as the result is first averaged down by an integer factor. Raises
    DataError if the points are the same, or give the face no size.
    """
    height, width = size
    forward = similarity(points, np.asarray(template, np.float64) * (width, height))
    scale = float(np.sqrt(abs(np.linalg.det(forward[:, :2]))))
    if scale < 1e-9:
        raise DataError("the points of a face give it no size in the image")
    factor = min(int(1 / (scale * SHARP)), *pixels.shape[:2]) if scale * SHARP <= 1 else 1
    if factor > 1:
        pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
    back = np.linalg.inv(forward[:, :2])
    columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    places = np.stack([columns.ravel(), rows.ravel()], axis=1) - forward[:, 2]
    return _sampled(pixels, places @ back.T / factor).reshape(height, width, 3)


def _sampled(pixels: Array, places: Array) -> Array:
    """Return bilinear samples, N x 3 uint8, at N x 2 places (x, y) of an image with a repeated border."""
    most = np.array([pixels.shape[1] - 1, pixels.shape[0] - 1], np.float64)
    at = np.clip(places - 0.5, 0.0, most)
    before = np.floor(at).astype(np.intp)
    after = np.minimum(before + 1, most.astype(np.intp))
    across, down = (at - before).astype(np.float32).T[:, :, None]
    wide = pixels.astype(np.float32)
    upper = wide[before[:, 1], before[:, 0]] * (1 - across) + wide[before[:, 1], after[:, 0]] * across
    lower = wide[after[:, 1], before[:, 0]] * (1 - across) + wide[after[:, 1], after[:, 0]] * across
    return np.asarray(np.rint(upper * (1 - down) + lower * down), np.uint8)
