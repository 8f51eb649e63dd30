"""Rectification of a band of an image: a text line that is rotated or curved."""

from __future__ import annotations

import numpy as np
from PIL import Image

from engine import Array


def straightened(image: Image.Image, outline: Array) -> Image.Image:
    """Return the content of an outline in an ``RGB`` or ``L`` image, upright; outside, the image's edge is repeated.

    The outline is 2N x 2 (x, y) in pixels of the image, at pixel edges, N at least 2: the upper side from its left end,
    then the lower side backwards, such as the corners of a rectangle, clockwise. The result is as wide as the longer of
    the two sides, and as high as the mean distance of their points; at least 1 x 1.
    """
    count = len(outline) // 2
    upper, lower = np.asarray(outline[:count], np.float64), np.asarray(outline[count:][::-1], np.float64)
    widths = np.maximum(_steps(upper), _steps(lower))
    bounds = np.append(0, np.rint(np.cumsum(widths))).astype(int)
    bounds[-1] = max(1, bounds[-1])
    height = max(1, round(float(np.hypot(*(lower - upper).T).mean())))
    region, corner = _region(image, outline)
    upper, lower = upper - corner, lower - corner
    mesh = []
    for i in range(count - 1):
        if bounds[i + 1] > bounds[i]:
            corners = upper[i], lower[i], lower[i + 1], upper[i + 1]  # above left, below left, below right, above right
            mesh.append(((int(bounds[i]), 0, int(bounds[i + 1]), height), np.concatenate(corners).tolist()))
    return region.transform((int(bounds[-1]), height), Image.Transform.MESH, mesh, Image.Resampling.BICUBIC)


def _steps(points: Array) -> Array:
    steps = np.diff(points, axis=0)
    return np.hypot(steps[:, 0], steps[:, 1])


def _region(image: Image.Image, outline: Array) -> tuple[Image.Image, tuple[int, int]]:
    """Return the part of an image around an outline, with its edges repeated, and its upper left corner."""
    low, high = np.floor(outline.min(axis=0)).astype(int) - 2, np.ceil(outline.max(axis=0)).astype(int) + 2
    size = np.array(image.size)
    first, last = np.clip(low, 0, size - 1), np.clip(high, 1, size)
    last = np.maximum(last, first + 1)
    part = image.crop((*first.tolist(), *last.tolist()))
    before, after = np.maximum(first - low, 0), np.maximum(high - last, 0)
    if not (before.any() or after.any()):
        return part, (int(first[0]), int(first[1]))
    around = [(int(before[1]), int(after[1])), (int(before[0]), int(after[0]))]
    pixels = np.asarray(part)
    padded = np.pad(pixels, [*around, (0, 0)] if pixels.ndim == 3 else around, mode="edge")
    return Image.fromarray(padded), (int(low[0]), int(low[1]))
