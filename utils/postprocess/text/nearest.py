"""Nearest vectors by inner product, in blocks of queries and vectors to limit memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array

ROWS = 16
"""Queries multiplied together, always padded to this number, so that results do not depend on other queries."""

BLOCK = 1 << 15
"""Vectors multiplied at a time."""


class Nearest(NamedTuple):
    """Indices and scores of the nearest vectors, both N x K, best first; the lower index first for equal scores."""

    places: Array
    scores: Array


def nearest(queries: Array, vectors: Array, count: int, *, block: int = BLOCK) -> Nearest:
    """Return the ``count`` vectors with the largest inner product with each query, or all if there are fewer.

    Queries are N x D float32, vectors M x D float32. At most ``ROWS`` x ``block`` scores are in memory at a time.
    Returns indices int64 and scores float32, N x min(count, M). Scores of a query with NaN are NaN. A vector with NaN
    comes last, after all others.
    """
    count = min(count, len(vectors))
    places, scores = np.empty((len(queries), count), np.int64), np.empty((len(queries), count), np.float32)
    for start in range(0, len(queries), ROWS):
        some = slice(start, min(start + ROWS, len(queries)))
        places[some], scores[some] = _of_rows(queries[some], vectors, count, block)
    return Nearest(places, scores)


def _of_rows(queries: Array, vectors: Array, count: int, block: int) -> tuple[Array, Array]:
    filled = np.zeros((ROWS, vectors.shape[1]), np.float32)
    filled[: len(queries)] = queries
    best_places: Array = np.empty((len(queries), 0), np.int64)
    best_scores: Array = np.empty((len(queries), 0), np.float32)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block]
        with np.errstate(invalid="ignore"):  # NaN and infinities come out as NaN
            found = np.ascontiguousarray((part @ filled.T).T[: len(queries)])
        places, scores = _largest(found, count)
        best_places = np.concatenate([best_places, places + start], axis=1)
        best_scores = np.concatenate([best_scores, scores], axis=1)
        order = np.argsort(_falling(best_scores), axis=1, kind="stable")[:, :count]
        best_places, best_scores = (np.take_along_axis(kept, order, axis=1) for kept in (best_places, best_scores))
    return best_places, best_scores


def _largest(scores: Array, count: int) -> tuple[Array, Array]:
    """Return indices and values of the largest of each row, the lower index of equal ones, in order of index."""
    if count >= scores.shape[1]:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape), scores
    falling = _falling(scores)
    last = np.partition(falling, count - 1, axis=1)[:, count - 1 : count]
    found = np.empty((len(scores), count), np.int64)
    for row, values, edge in zip(found, falling, last, strict=True):
        sure, equal = np.flatnonzero(values < edge), np.flatnonzero(values == edge)
        row[:] = np.sort(np.concatenate([sure, equal[: count - len(sure)]]))
    return found, np.take_along_axis(scores, found, axis=1)


def _falling(scores: Array) -> Array:
    """Return keys that sort scores in descending order, NaN last."""
    return np.where(np.isnan(scores), np.float32(np.inf), -scores)
