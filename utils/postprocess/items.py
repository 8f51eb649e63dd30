"""From scores of items to the best of those that may be recommended, the same for any batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array


class Best(NamedTuple):
    """Places and their scores (float32), the best first; of equal scores the earlier place."""

    places: Array
    scores: Array


def best(scores: Array, count: int, left_out: Sequence[int] = ()) -> Best:
    """Return the places of the largest scores.

    Args:
        scores: float32 M; NaN comes last. count: how many at most. left_out: places that are not to be found.
    """
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
    """Return different places of ``total`` that are not left out, chosen by chance; all there are where fewer are.

    Args:
        count: how many. total: places there are. left_out: which of them are not to be drawn. seed: whole numbers of
            0 or more; with the same ones the same are drawn, whatever else is drawn beside them.

    Returns:
        int64, in the order in which they were drawn.
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
