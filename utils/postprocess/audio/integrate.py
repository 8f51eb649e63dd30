"""Continuous integrate-and-fire: from weights of frames to tokens (Dong and Xu 2020)."""

from __future__ import annotations

import numpy as np

from engine import Array


def integrated(states: Array, weights: Array, tail: float = 0.0) -> Array:
    """Return the acoustic embedding of each token, a weighted sum of states: float64 [L, D], L the sum of all weights.

    Weights (float [T], in 0..1) of the states (float [T, D]) are summed along the frames, and each time the sum passes
    an integer a token is complete; that frame gives the rest of its weight to the next token. So token ``k`` has the
    part of each frame's weight between ``k`` and ``k + 1`` in the sum, which is computed for all tokens at once. L is
    rounded down; ``tail`` is a weight after the last frame, with a state of zeros, that completes an almost complete
    last token.
    """
    ends = np.cumsum(np.append(weights.astype(np.float64), tail))
    starts = np.append(0.0, ends[:-1])
    token = np.arange(int(ends[-1]))[:, None]
    parts = np.minimum(ends, token + 1) - np.maximum(starts, token)
    return np.asarray(np.maximum(parts, 0)[:, :-1] @ states.astype(np.float64))
