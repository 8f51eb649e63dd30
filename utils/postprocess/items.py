"""Top-scoring items, independent of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array


class Best(NamedTuple):
    """Indices and their scores (float32), best first; the lower index first for equal scores."""

    places: Array
    scores: Array


def best(scores: Array, count: int, left_out: Sequence[int] = ()) -> Best:
    """Return the indices of the ``count`` largest float32 scores that are not excluded; NaN comes last."""
    values = np.where(np.isnan(scores), np.float32(-np.inf), scores).astype(np.float32)
    open_to = np.ones(len(values), bool)
    open_to[np.asarray(left_out, np.int64)] = False
    places = np.flatnonzero(open_to)
    falling = -values[places]
    if count < len(places):
        edge = np.partition(falling, count - 1)[count - 1]
        near = falling <= edge
        places, falling = places[near], falling[near]
    order = np.argsort(falling, kind="stable")[:count]
    return Best(places[order], np.asarray(scores[places[order]], np.float32))


def drawn(count: int, total: int, left_out: Sequence[int], seed: Sequence[int]) -> Array:
    """Return up to ``count`` different random indices below ``total`` that are not excluded, int64, in random order.

    The seed is integers of 0 or more; the same ones give the same indices.
    """
    chance = np.random.default_rng(list(seed))
    banned = set(left_out)
    if total < 4 * (count + len(banned)):
        mixed = chance.permutation(total)
        return np.array([place for place in mixed.tolist() if place not in banned][:count], np.int64)
    found: dict[int, None] = {}
    while len(found) < count:
        for place in chance.integers(total, size=2 * count).tolist():
            if place not in banned and len(found) < count:
                found[place] = None
    return np.array(list(found), np.int64)
