"""Faces brought to one place: five points onto those of a template, by turning, scaling and moving, nothing else."""

from __future__ import annotations

import numpy as np
from PIL import Image

from engine import Array, DataError

POINTS = 5
"""Points of a face: the eye that lies left in the picture, the right one, nose, left and right corner of the mouth."""

TEMPLATE = (
    (0.341916, 0.461574),
    (0.656534, 0.459834),
    (0.500225, 0.640505),
    (0.370976, 0.824692),
    (0.631517, 0.823250),
)
"""Where the points lie in a chip, as shares of its width and height: those that ArcFace and its like are trained with
(Deng et al. 2019; 38.2946, 51.6963 and so on in 112 x 112 pixels)."""

SHARP = 2
"""A picture is averaged down to less than this many pixels per pixel of the chip before it is sampled."""


def similarity(points: Array, places: Array) -> Array:
    """Return the turn, scale and shift that bring points nearest to places in the sum of squares (Umeyama 1991).

    Nothing is mirrored.

    Args:
        points, places: N x 2, x and y; at least two that are not one.

    Returns:
        2 x 3 float64: ``places ~ points @ m[:, :2].T + m[:, 2]``.

    Raises:
        DataError: the points are all one, or not finite.
    """
    source, target = np.asarray(points, np.float64), np.asarray(places, np.float64)
    middle, goal = source.mean(axis=0), target.mean(axis=0)
    away, wanted = source - middle, target - goal
    spread = float((away**2).sum())
    if not np.isfinite(spread) or spread < 1e-12:
        raise DataError(f"the {len(source)} points of a face lie on one another, or are not finite: it has no size")
    left, sizes, right = np.linalg.svd(wanted.T @ away)
    signs = np.array([1.0, 1.0 if np.linalg.det(left @ right) > 0 else -1.0])
    turn = left @ np.diag(signs) @ right
    linear = turn * float((sizes * signs).sum()) / spread
    return np.concatenate([linear, (goal - linear @ middle)[:, None]], axis=1)


def chip(pixels: Array, points: Array, template: Array, size: tuple[int, int]) -> Array:
    """Cut a face out of a picture so that its points lie where a template has them.

    Pixels lie at half-integer coordinates. Beyond the picture its outermost pixels are repeated. Samples are bilinear;
    where the face is more than twice as large as the chip, the picture is first averaged down by a whole factor.

    Args:
        pixels: H x W x 3 uint8. points: N x 2, x and y in pixels of the picture.
        template: N x 2, as shares of the chip's width and height. size: height and width of the chip in pixels.

    Returns:
        height x width x 3 uint8.

    Raises:
        DataError: the points lie on one another.
    """
    height, width = size
    forward = similarity(points, np.asarray(template, np.float64) * (width, height))
    scale = float(np.sqrt(abs(np.linalg.det(forward[:, :2]))))
    if scale < 1e-9:
        raise DataError("the points of a face lie so that it has no size in the picture")
    factor = min(int(1 / (scale * SHARP)), *pixels.shape[:2]) if scale * SHARP <= 1 else 1
    if factor > 1:
        pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
    back = np.linalg.inv(forward[:, :2])
    columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    places = np.stack([columns.ravel(), rows.ravel()], axis=1) - forward[:, 2]
    return _sampled(pixels, places @ back.T / factor).reshape(height, width, 3)


def _sampled(pixels: Array, places: Array) -> Array:
    """Return bilinear samples, N x 3 uint8, at N x 2 places (x, y) of a picture, whose border is repeated."""
    most = np.array([pixels.shape[1] - 1, pixels.shape[0] - 1], np.float64)
    at = np.clip(places - 0.5, 0.0, most)
    before = np.floor(at).astype(np.intp)
    behind = np.minimum(before + 1, most.astype(np.intp))
    across, down = (at - before).astype(np.float32).T[:, :, None]
    wide = pixels.astype(np.float32)
    upper = wide[before[:, 1], before[:, 0]] * (1 - across) + wide[before[:, 1], behind[:, 0]] * across
    lower = wide[behind[:, 1], before[:, 0]] * (1 - across) + wide[behind[:, 1], behind[:, 0]] * across
    levels: Array = np.rint(upper * (1 - down) + lower * down).astype(np.uint8)
    return levels
