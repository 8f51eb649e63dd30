"""From weights of frames to tokens: continuous integrate-and-fire (Dong and Xu 2020)."""

from __future__ import annotations

import numpy as np

from engine import Array


def integrated(states: Array, weights: Array, tail: float = 0.0) -> Array:
    """Return what a recording's tokens sound like: a weighted sum of states for each.

    Weights add up along the frames, and each time the sum passes a whole number a token is complete; the frame where
    that happens gives the rest of its weight to the next token. So token ``k`` takes of each frame the part of its
    weight that lies between ``k`` and ``k + 1`` in the sum, which is computed for all of them at once.

    Args:
        states: float [T, D]. weights: float [T], none below 0 or above 1.
        tail: weight behind the last frame, with a state of zeros: it completes a token that is nearly there.

    Returns:
        float64 [L, D]; L is the sum of all weights, rounded down.
    """
    ends = np.cumsum(np.append(weights.astype(np.float64), tail))
    starts = np.append(0.0, ends[:-1])
    token = np.arange(int(ends[-1]))[:, None]
    parts = np.minimum(ends, token + 1) - np.maximum(starts, token)
    found: Array = np.maximum(parts, 0)[:, :-1] @ states.astype(np.float64)
    return found
