"""Windows of one length, cut out of recordings of any length."""

from __future__ import annotations

import numpy as np

from engine import Array

FRAMES = "frames"
"""The window is not filled: the recording's features are, by whoever computes them."""

FILLS = ("zeros", "repeat", "after", FRAMES)
"""Ways to fill a window that is longer than its recording: silence on both sides, the recording again and again,
silence after it, or :data:`FRAMES`."""


def fitted(samples: Array, length: int, fill: str = FILLS[0]) -> Array:
    """Return the middle of a recording, or a short one in the middle of a window, float32 [length].

    ``fill``: one of :data:`FILLS`; a repeated recording begins with its first sample. With :data:`FRAMES`, a short
    recording is returned as it is.
    """
    have = len(samples)
    if have >= length:
        start = (have - length) // 2
        return samples[start : start + length]
    if fill == "repeat" and have:
        return np.resize(samples, length)
    if fill == FRAMES:
        return samples
    before = 0 if fill == "after" else (length - have) // 2
    return np.pad(samples, (before, length - have - before))


def windows(samples: Array, length: int, hop: int, fill: str = FILLS[0]) -> Array:
    """Return windows of a recording, float32 [W, length], W at least 1; with :data:`FRAMES`, a short one is [1, S].

    A recording up to a window long is one window (:func:`fitted`). A longer one has a window every ``hop`` samples, and
    a last one that ends with the recording.
    """
    if len(samples) <= length:
        return fitted(samples, length, fill)[None]
    starts = [*range(0, len(samples) - length, hop), len(samples) - length]
    return np.stack([samples[start : start + length] for start in starts])
