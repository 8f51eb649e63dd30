"""Maps of numbers in colours."""

from __future__ import annotations

import numpy as np

from engine import Array

POINTS = ((0, 0, 60), (70, 20, 160), (180, 40, 130), (240, 110, 60), (255, 200, 70), (255, 255, 220))
"""Colours from the smallest to the largest value, with rising lightness; between them they are interpolated."""

UNKNOWN = (0, 0, 0)
"""Colour of values that are unknown: 0 or not finite."""


def coloured(values: Array, low: float, high: float) -> Array:
    """Return values, H x W, as an image, H x W x 3 uint8: ``low`` and below dark, ``high`` and above light."""
    known = np.isfinite(values) & (values != 0)
    share = (np.where(known, values, low) - low) / (high - low if high > low else 1.0)
    place = share.clip(0, 1) * (len(POINTS) - 1)
    start = place.astype(int).clip(0, len(POINTS) - 2)
    colours = np.array(POINTS, np.float64)
    mixed = colours[start] + (colours[start + 1] - colours[start]) * (place - start)[..., None]
    found: Array = np.where(known[..., None], np.rint(mixed), UNKNOWN).astype(np.uint8)
    return found
