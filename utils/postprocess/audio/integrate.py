"""Continuous integrate-and-fire: from weights of frames to tokens (Dong and Xu 2020)."""

from __future__ import annotations

import numpy as np

from engine import Array


def integrated(states: Array, weights: Array, tail: float = 0.0) -> Array:
    """Return the acoustic embedding of each token: a weighted sum of states.

    Weights are summed along the frames, and each time the sum passes an integer a token is complete; that frame gives
    the rest of its weight to the next token. So token ``k`` has the part of each frame's weight between ``k`` and ``k +
    1`` in the sum, which is computed for all tokens at once.

    Args:
        states: float [T, D]. weights: float [T], in 0..1.
        tail: weight after the last frame, with a state of zeros; it completes an almost complete last token.

    Returns float64 [L, D]; L is the sum of all weights, rounded down.
    """
    ends = np.cumsum(np.append(weights.astype(np.float64), tail))
    starts = np.append(0.0, ends[:-1])
    token = np.arange(int(ends[-1]))[:, None]
    parts = np.minimum(ends, token + 1) - np.maximum(starts, token)
    found: Array = np.maximum(parts, 0)[:, :-1] @ states.astype(np.float64)
    return found
